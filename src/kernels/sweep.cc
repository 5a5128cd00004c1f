#include "kernels/sweep.h"

#include <bit>
#include <type_traits>

#include "kernels/targets.h"  // must come before foreach_target.h
#include "sparsewire/support/half.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sweep.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef SPARSEWIRE_SWEEP_ONCE
#define SPARSEWIRE_SWEEP_ONCE
namespace sparsewire::kernels {
namespace {

// Entries that the vector loop accumulates before the scalar loop takes out the large ones. With 1024, memory, gradient
// and masks stay in the L1 cache, and the two loops do not disturb each other: at a ratio of 1 % this took 0.9 of the
// time of 4096, and 0.75 of the time of taking entries out vector by vector (docs/archive/benchmarks_history.md).
constexpr std::size_t kStretch = 1024;
constexpr std::size_t kWord = 64;  // entries for each word of the mask

inline float as_float(const float* numbers, std::size_t i) noexcept { return numbers[i]; }

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
struct Nothing {};  // no gradient: the memory alone
inline float as_float(const Bf16* numbers, std::size_t i) noexcept { return from_bf16(numbers[i].bits); }
inline float as_float(const F16* numbers, std::size_t i) noexcept { return from_f16(numbers[i].bits); }

// Accumulation and its inverse, for one entry. Factors of 1 need no special case: multiplying by them is exact.
template <class T>
inline float accumulated(const ScaledGradient& gradient, const float* memory, std::size_t i) noexcept {
  if constexpr (std::is_same_v<T, Nothing>)
    return memory[i];
  else
    return gradient.decay * memory[i] + gradient.scale * as_float(static_cast<const T*>(gradient.data), i);
}
// Limited to finite numbers: dividing by a small decay may overflow where the old number was rounded up.
template <class T>
inline float reverted(const ScaledGradient& gradient, float sum, std::size_t i) noexcept {
  constexpr float kLargest = 0x1.fffffep127F;
  const float old = (sum - gradient.scale * as_float(static_cast<const T*>(gradient.data), i)) / gradient.decay;
  return old > kLargest ? kLargest : old < -kLargest ? -kLargest : old;
}
// Accumulation and its inverse in turn.
template <class T>
inline void make_round_trip_at(const ScaledGradient& gradient, float* memory, std::size_t i) noexcept {
  const float sum = accumulated<T>(gradient, memory, i);
  if (key_of(sum) < kInfinityKey) memory[i] = reverted<T>(gradient, sum, i);
}

// Calls f with a null pointer to the gradient's number type.
template <class F>
inline auto with_type(NumberType type, F f) noexcept {
  switch (type) {
    case NumberType::bf16:
      return f(static_cast<Bf16*>(nullptr));
    case NumberType::f16:
      return f(static_cast<F16*>(nullptr));
    case NumberType::f32:
      break;
  }
  return f(static_cast<float*>(nullptr));
}

}  // namespace
}  // namespace sparsewire::kernels
#endif  // SPARSEWIRE_SWEEP_ONCE

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, 16>;
using Ints = hn::RebindToSigned<Floats>;
using Doubles = hn::CappedTag<double, 16>;
using HalfFloats = hn::Half<Floats>;
using HalfInts = hn::Rebind<std::uint16_t, Floats>;
using Float = hn::Vec<Floats>;
using Double = hn::Vec<Doubles>;

constexpr Floats kFloats;
constexpr Ints kInts;
constexpr Doubles kDoubles;
constexpr HalfFloats kHalfFloats;
constexpr std::size_t kWidth = hn::MaxLanes(kFloats);
constexpr std::size_t kDoubleWidth = hn::MaxLanes(kDoubles);
constexpr std::size_t kVectors = kLanes / kWidth;  // SIMD vectors in a group of kLanes entries

// In halves of 64 bytes: a gradient often begins within a cache line, and then every load of 64 bytes takes two.
HWY_INLINE Float load(const float* at) {
#if HWY_TARGET <= HWY_AVX3
  return hn::Combine(kFloats, hn::LoadU(kHalfFloats, at + kWidth / 2), hn::LoadU(kHalfFloats, at));
#else
  return hn::LoadU(kFloats, at);
#endif
}

HWY_INLINE hn::Vec<hn::RebindToUnsigned<Floats>> load_bits(const std::uint16_t* at) {
  return hn::PromoteTo(hn::RebindToUnsigned<Floats>(), hn::LoadU(HalfInts(), at));
}

HWY_INLINE Float load(const Bf16* at) { return hn::BitCast(kFloats, hn::ShiftLeft<16>(load_bits(&at->bits))); }

HWY_INLINE Float load(const F16* at) {
  const hn::RebindToUnsigned<Floats> u;
  const auto bits = load_bits(&at->bits);
  const auto shifted = hn::ShiftLeft<13>(hn::And(bits, hn::Set(u, 0x7FFF)));
  const auto magnitude = hn::Mul(hn::BitCast(kFloats, shifted), hn::Set(kFloats, 0x1p112F));
  const auto is_special =
      hn::Gt(hn::BitCast(kInts, shifted), hn::Set(kInts, static_cast<std::int32_t>((0x7C00U << 13) - 1)));
  const auto special = hn::IfThenElseZero(is_special, hn::Set(kInts, static_cast<std::int32_t>(kInfinityKey)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000)));
  return hn::Or(hn::BitCast(kFloats, hn::Or(hn::BitCast(u, special), sign)), magnitude);
}

// lanes += a*a, where `a` is vector number `v` of a group of kLanes entries.
HWY_INLINE void add_squares(Float a, std::size_t v, Double* sums) {
#if HWY_TARGET == HWY_SCALAR  // a vector of one lane has no halves
  const Double wide = hn::PromoteTo(kDoubles, a);
  sums[v] = hn::MulAdd(wide, wide, sums[v]);
#else
  const Double low = hn::PromoteTo(kDoubles, hn::LowerHalf(kHalfFloats, a));
  const Double high = hn::PromoteTo(kDoubles, hn::UpperHalf(kHalfFloats, a));
  sums[2 * v] = hn::MulAdd(low, low, sums[2 * v]);
  sums[2 * v + 1] = hn::MulAdd(high, high, sums[2 * v + 1]);
#endif
}

constexpr std::size_t kSums = kLanes / kDoubleWidth;

// The lanes of the slice that has begun, in registers.
struct Sums {
  Double at[kSums];

  HWY_INLINE Sums() {
    for (std::size_t s = 0; s < kSums; ++s) at[s] = hn::Zero(kDoubles);
  }
  HWY_INLINE void store(double* lanes) const {
    for (std::size_t s = 0; s < kSums; ++s) hn::StoreU(at[s], kDoubles, lanes + s * kDoubleWidth);
  }
  // Adds lane i and i + 16, then i and i + 8, and so on.
  HWY_INLINE double total() {
    for (std::size_t half = kSums / 2; half > 0; half /= 2) {
      for (std::size_t s = 0; s < half; ++s) at[s] = hn::Add(at[s], at[s + half]);
    }
    HWY_ALIGN double lanes[kDoubleWidth];
    hn::Store(at[0], kDoubles, lanes);
    return add_pairwise(lanes, kDoubleWidth);
  }
};

// Calls word(first, sums) for every whole word of 64 of the n entries from `first` on, with the sums of the slice that
// they belong to, and rest(first, count, lane) for those that are left, fewer than a word at a time, which add their
// squares to norm.lanes from `lane` on.
template <class Word, class Rest>
HWY_INLINE void for_each_word(std::size_t first, std::size_t n, TileNorms& norm, Word word, Rest rest) {
  constexpr std::size_t kWords = kSlice / kWord;
  std::size_t done = 0;
  // Only where a unit has gaps does a stretch begin within a slice.
  while (norm.in_slice() != 0 && done < n) {
    const std::size_t count = HWY_MIN(HWY_MIN(kWord, n - done), kSlice - norm.in_slice());
    rest(first + done, count, norm.in_slice());
    norm.advance(count);
    done += count;
  }
  for (; done + kSlice <= n; done += kSlice) {
    Sums sums;
    for (std::size_t w = 0; w < kWords; ++w) word(first + done + w * kWord, sums);
    norm.add_slice(sums.total());
  }
  if (done + kWord <= n) {
    Sums sums;
    std::size_t count = 0;
    for (; done + count + kWord <= n; count += kWord) word(first + done + count, sums);
    sums.store(norm.lanes.data());
    norm.advance(count);
    done += count;
  }
  if (done < n) {
    rest(first + done, n - done, norm.in_slice());
    norm.advance(n - done);
  }
}

HWY_INLINE hn::Mask<Floats> at_or_above(Float a, hn::Vec<Ints> below) {
  const auto key = hn::And(hn::BitCast(kInts, a), hn::Set(kInts, 0x7FFFFFFF));
  return hn::RebindMask(kFloats, hn::Gt(key, below));
}

// Writes the mask of vector number `v` of a word of 64 entries.
HWY_INLINE void store_mask(hn::Mask<Floats> mask, std::size_t v, std::uint64_t& word) {
  if constexpr (kWidth >= 8) {
    hn::StoreMaskBits(kFloats, mask, reinterpret_cast<std::uint8_t*>(&word) + v * (kWidth / 8));
  } else {
    std::uint8_t bits[8] = {};  // StoreMaskBits may write 8 bytes
    hn::StoreMaskBits(kFloats, mask, bits);
    word |= static_cast<std::uint64_t>(bits[0]) << (v * kWidth);
  }
}

// Accumulates the 64 entries of one word. Stores the sums below the threshold, and returns a mask of the other entries,
// whose memory is not changed yet. Without a gradient (T = Nothing) only the mask is needed.
template <class T, bool kPlain>
HWY_INLINE std::uint64_t accumulate_word(const ScaledGradient& gradient, std::size_t first, float* HWY_RESTRICT memory,
                                         hn::Vec<Ints> below, Sums& sums) {
  std::uint64_t word = 0;
  if constexpr (std::is_same_v<T, Nothing>) {
    for (std::size_t v = 0; v < kWord / kWidth; ++v) {
      const Float a = hn::LoadU(kFloats, memory + first + v * kWidth);
      store_mask(at_or_above(a, below), v, word);
      add_squares(a, v % kVectors, sums.at);
    }
  } else {
    const T* numbers = static_cast<const T*>(gradient.data);
    const auto scale = hn::Set(kFloats, gradient.scale);
    const auto decay = hn::Set(kFloats, gradient.decay);
    for (std::size_t v = 0; v < kWord / kWidth; ++v) {
      const std::size_t i = first + v * kWidth;
      const Float old = hn::LoadU(kFloats, memory + i);
      const Float number = load(numbers + i);
      const Float a = kPlain ? hn::Add(old, number) : hn::Add(hn::Mul(decay, old), hn::Mul(scale, number));
      const auto large = at_or_above(a, below);
      hn::StoreU(hn::IfThenElse(large, old, a), kFloats, memory + i);
      store_mask(large, v, word);
      add_squares(a, v % kVectors, sums.at);
    }
  }
  return word;
}

// The same for fewer than 64 entries, one by one.
template <class T>
HWY_INLINE std::uint64_t accumulate_rest(const ScaledGradient& gradient, std::size_t first, std::size_t n,
                                         float* memory, std::uint32_t threshold, double* lanes, std::size_t lane) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float a = accumulated<T>(gradient, memory, first + i);
    const bool large = key_of(a) >= threshold;
    if (!large) memory[first + i] = a;
    word |= static_cast<std::uint64_t>(large) << i;
    const double wide = a;
    lanes[(lane + i) % kLanes] += wide * wide;
  }
  return word;
}

// Writes the numbers of the words that are not zero to `where` and returns how many there are. Without a branch, which
// would be mispredicted about half the time at a ratio of 1 %.
HWY_INLINE std::size_t squeeze(const std::uint64_t* words, std::size_t n, std::uint8_t* where) {
  std::size_t count = 0;
  for (std::size_t w = 0; w < n; ++w) {
    where[count] = static_cast<std::uint8_t>(w);
    count += words[w] != 0 ? 1 : 0;
  }
  return count;
}

// Writes the positions of the bits of n words, ascending, and returns how many there are. At usual ratios nearly all
// words have kAtOnce bits at most; so many are written for each, whatever it has, because a loop that ends with the
// last bit would be mispredicted for every second word. REQUIRES: room for kAtOnce positions more.
constexpr std::size_t kAtOnce = 4;
HWY_INLINE std::size_t write_positions(const std::uint64_t* words, std::size_t n, std::size_t first,
                                       std::uint32_t* positions) {
  std::uint8_t where[kStretch / kWord];
  const std::size_t busy = squeeze(words, n, where);
  std::size_t count = 0;
  for (std::size_t b = 0; b < busy; ++b) {
    std::uint64_t word = words[where[b]];
    const std::size_t base = first + where[b] * kWord;
    const auto bits = static_cast<std::size_t>(std::popcount(word));
    const auto write_next = [&](std::size_t i) HWY_ATTR {
      positions[count + i] = static_cast<std::uint32_t>(base + static_cast<std::size_t>(std::countr_zero(word)));
      word &= word - 1;
    };
    for (std::size_t i = 0; i < kAtOnce; ++i) write_next(i);
    for (std::size_t i = kAtOnce; i < bits; ++i) write_next(i);
    count += bits;
  }
  return count;
}

// One call of accumulate_and_take(), as far as it came when it found a sum that is not finite.
struct Unfinished {
  std::size_t first;
  std::size_t n;
  std::size_t stretch;  // its first entry; those before it are accumulated, those behind it are not
  std::size_t stretch_size;
  const std::uint64_t* words;  // of the stretch: the large entries, whose memory has the old numbers
};

// Brings all entries of the call to where make_round_trip() brings them. REQUIRES: the taken entries were put back.
template <class T>
void take_back(const ScaledGradient& gradient, const Unfinished& call, float* memory) {
  for (std::size_t i = call.first; i < call.stretch; ++i) memory[i] = reverted<T>(gradient, memory[i], i);
  for (std::size_t s = 0; s < call.stretch_size; ++s) {
    const std::size_t i = call.stretch + s;
    const bool large = (call.words[s / kWord] >> (s % kWord) & 1) != 0;
    if (large) {
      make_round_trip_at<T>(gradient, memory, i);
    } else {
      memory[i] = reverted<T>(gradient, memory[i], i);
    }
  }
  for (std::size_t i = call.stretch + call.stretch_size; i < call.first + call.n; ++i) {
    make_round_trip_at<T>(gradient, memory, i);
  }
}

template <class T, bool kPlain>
Taken accumulate_and_take_typed(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory,
                                std::uint32_t threshold, std::uint32_t* indices, float* values, TileNorms& norm) {
  const auto below = hn::Set(kInts, static_cast<std::int32_t>(threshold - 1));
  std::uint64_t words[kStretch / kWord];
  std::uint32_t positions[kStretch + kAtOnce];
  std::size_t count = 0;
  std::size_t size = 0;
  for (std::size_t begin = 0; begin < n; begin += size) {
    size = HWY_MIN(norm.in_slice() == 0 ? kStretch : kSlice - norm.in_slice(), n - begin);
    const std::size_t start = first + begin;
    std::size_t w = 0;
    for_each_word(
        start, size, norm,
        [&](std::size_t at, Sums& sums)
            HWY_ATTR { words[w++] = accumulate_word<T, kPlain>(gradient, at, memory, below, sums); },
        [&](std::size_t at, std::size_t rest, std::size_t lane) HWY_ATTR {
          words[w++] = accumulate_rest<T>(gradient, at, rest, memory, threshold, norm.lanes.data(), lane);
        });
    const std::size_t found = write_positions(words, w, start, positions);
    std::uint32_t top = 0;  // the largest key
    for (std::size_t t = 0; t < found; ++t) {
      const float a = accumulated<T>(gradient, memory, positions[t]);
      indices[count + t] = positions[t];
      values[count + t] = a;
      top = HWY_MAX(top, key_of(a));
    }
    if constexpr (!std::is_same_v<T, Nothing>) {
      if (HWY_UNLIKELY(top >= kInfinityKey)) {
        std::size_t bad = count;
        while (key_of(values[bad]) < kInfinityKey) ++bad;
        for (std::size_t t = 0; t < count; ++t) memory[indices[t]] = values[t];
        take_back<T>(gradient, {first, n, start, size, words}, memory);
        return {0, indices[bad]};
      }
    }
    for (std::size_t t = 0; t < found; ++t) memory[positions[t]] = 0.0F;
    count += found;
  }
  return {count, kNoneBad};
}

Taken accumulate_and_take(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, TileNorms& norm) {
  const bool plain = gradient.scale == 1.0F && gradient.decay == 1.0F;
  return with_type(gradient.type, [&]<class T>(T*) {
    return plain ? accumulate_and_take_typed<T, true>(gradient, first, n, memory, threshold, indices, values, norm)
                 : accumulate_and_take_typed<T, false>(gradient, first, n, memory, threshold, indices, values, norm);
  });
}

std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values, TileNorms& norm) {
  return accumulate_and_take_typed<Nothing, true>({}, first, n, memory, threshold, indices, values, norm).count;
}

template <class T>
std::size_t accumulate_into_typed(const ScaledGradient& gradient, std::size_t first, std::size_t n, const float* memory,
                                  float* all, TileNorms& norm) {
  const T* numbers = static_cast<const T*>(gradient.data);
  const auto scale = hn::Set(kFloats, gradient.scale);
  const auto decay = hn::Set(kFloats, gradient.decay);
  auto top = hn::Zero(kInts);  // the largest key so far: checked once, at the end, to see whether all sums are finite
  std::uint32_t top_of_rest = 0;
  for_each_word(
      first, n, norm,
      [&](std::size_t at, Sums& sums) HWY_ATTR {
        for (std::size_t v = 0; v < kWord / kWidth; ++v) {
          const std::size_t i = at + v * kWidth;
          const Float a = hn::Add(hn::Mul(decay, hn::LoadU(kFloats, memory + i)), hn::Mul(scale, load(numbers + i)));
          hn::StoreU(a, kFloats, all + i);
          top = hn::Max(top, hn::And(hn::BitCast(kInts, a), hn::Set(kInts, 0x7FFFFFFF)));
          add_squares(a, v % kVectors, sums.at);
        }
      },
      [&](std::size_t at, std::size_t rest, std::size_t lane) HWY_ATTR {
        for (std::size_t i = 0; i < rest; ++i) {
          const float a = accumulated<T>(gradient, memory, at + i);
          all[at + i] = a;
          top_of_rest = HWY_MAX(top_of_rest, key_of(a));
          const double wide = a;
          norm.lanes[(lane + i) % kLanes] += wide * wide;
        }
      });
  const auto largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(kInts, top)));
  if (HWY_LIKELY(HWY_MAX(largest, top_of_rest) < kInfinityKey)) return kNoneBad;
  std::size_t bad = first;
  while (key_of(all[bad]) < kInfinityKey) ++bad;
  return bad;
}

std::size_t accumulate_into(const ScaledGradient& gradient, std::size_t first, std::size_t n, const float* memory,
                            float* all, TileNorms& norm) {
  return with_type(gradient.type,
                   [&]<class T>(T*) { return accumulate_into_typed<T>(gradient, first, n, memory, all, norm); });
}

template <class T>
void sum_squares_typed(const ScaledGradient& gradient, std::size_t first, std::size_t n, TileNorms& norm) {
  const T* numbers = static_cast<const T*>(gradient.data);
  for_each_word(
      first, n, norm,
      [&](std::size_t at, Sums& sums) HWY_ATTR {
        for (std::size_t v = 0; v < kWord / kWidth; ++v) {
          add_squares(load(numbers + at + v * kWidth), v % kVectors, sums.at);
        }
      },
      [&](std::size_t at, std::size_t rest, std::size_t lane) HWY_ATTR {
        for (std::size_t i = 0; i < rest; ++i) {
          const double wide = as_float(numbers, at + i);
          norm.lanes[(lane + i) % kLanes] += wide * wide;
        }
      });
}

void sum_squares(const ScaledGradient& gradient, std::size_t first, std::size_t n, TileNorms& norm) {
  with_type(gradient.type, [&]<class T>(T*) { sum_squares_typed<T>(gradient, first, n, norm); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(accumulate_and_take);
HWY_EXPORT(take);
HWY_EXPORT(accumulate_into);
HWY_EXPORT(sum_squares);
}  // namespace

Taken accumulate_and_take(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, TileNorms& norm) noexcept {
  return HWY_DYNAMIC_DISPATCH(accumulate_and_take)(gradient, first, n, memory, threshold, indices, values, norm);
}

std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values, TileNorms& norm) noexcept {
  return HWY_DYNAMIC_DISPATCH(take)(first, n, memory, threshold, indices, values, norm);
}

std::size_t accumulate_into(const ScaledGradient& gradient, std::size_t first, std::size_t n, const float* memory,
                            float* all, TileNorms& norm) noexcept {
  return HWY_DYNAMIC_DISPATCH(accumulate_into)(gradient, first, n, memory, all, norm);
}

void sum_squares(const ScaledGradient& gradient, std::size_t first, std::size_t n, TileNorms& norm) noexcept {
  HWY_DYNAMIC_DISPATCH(sum_squares)(gradient, first, n, norm);
}

void restore(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept {
  with_type(gradient.type, [&]<class T>(T*) {
    for (std::size_t i = first; i < first + n; ++i) memory[i] = reverted<T>(gradient, memory[i], i);
  });
}

void make_round_trip(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept {
  with_type(gradient.type, [&]<class T>(T*) {
    for (std::size_t i = first; i < first + n; ++i) make_round_trip_at<T>(gradient, memory, i);
  });
}

float number_at(const ScaledGradient& gradient, std::size_t i) noexcept {
  return with_type(gradient.type, [&]<class T>(T*) { return as_float(static_cast<const T*>(gradient.data), i); });
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
