#include "kernels/sweep.h"

#include <array>

#include "core/half.h"

// Arrays of SIMD vectors need a size known at compile time; so Arm machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
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
// time of 4096, and 0.75 of the time of taking entries out vector by vector (docs/benchmarks.md).
constexpr std::size_t kStretch = 1024;
constexpr std::size_t kWord = 64;  // entries for each word of the mask

inline float as_float(const float* numbers, std::size_t i) noexcept { return numbers[i]; }

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};
inline float as_float(const Bf16* numbers, std::size_t i) noexcept { return from_bf16(numbers[i].bits); }
inline float as_float(const F16* numbers, std::size_t i) noexcept { return from_f16(numbers[i].bits); }

// Accumulation and its inverse, for one entry. Factors of 1 need no special case: multiplying by them is exact.
template <class T>
inline float accumulated(const Gradient& gradient, const float* memory, std::size_t i) noexcept {
  return gradient.decay * memory[i] + gradient.scale * as_float(static_cast<const T*>(gradient.data), i);
}
template <class T>
inline float reverted(const Gradient& gradient, float sum, std::size_t i) noexcept {
  return (sum - gradient.scale * as_float(static_cast<const T*>(gradient.data), i)) / gradient.decay;
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
using Floats = hn::CappedTag<float, kLanes>;
using Ints = hn::RebindToSigned<Floats>;
using Doubles = hn::CappedTag<double, kLanes>;
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

HWY_INLINE Float load(const float* at) { return hn::LoadU(kFloats, at); }

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

// Keeps the lanes of the sum of squares in registers during a stretch.
struct Sums {
  Double at[kSums];

  HWY_INLINE explicit Sums(const double* lanes) {
    for (std::size_t s = 0; s < kSums; ++s) at[s] = hn::LoadU(kDoubles, lanes + s * kDoubleWidth);
  }
  HWY_INLINE void store(double* lanes) const {
    for (std::size_t s = 0; s < kSums; ++s) hn::StoreU(at[s], kDoubles, lanes + s * kDoubleWidth);
  }
};

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
// whose memory is not changed yet.
template <class T, bool kPlain>
HWY_INLINE std::uint64_t accumulate_word(const Gradient& gradient, std::size_t first, float* HWY_RESTRICT memory,
                                         hn::Vec<Ints> below, Sums& sums) {
  const T* numbers = static_cast<const T*>(gradient.data);
  const auto scale = hn::Set(kFloats, gradient.scale);
  const auto decay = hn::Set(kFloats, gradient.decay);
  std::uint64_t word = 0;
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
  return word;
}

// The same for the last entries of a block, fewer than a word: one by one.
template <class T>
HWY_INLINE std::uint64_t accumulate_rest(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                                         std::uint32_t threshold, double* lanes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float a = accumulated<T>(gradient, memory, first + i);
    const bool large = key_of(a) >= threshold;
    if (!large) memory[first + i] = a;
    word |= static_cast<std::uint64_t>(large) << i;
    const double wide = a;
    lanes[i % kLanes] += wide * wide;
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

// Takes a stretch back in which a sum is not finite. The first `taken` of its large entries are already in `indices`
// and `values`; the memory of the other large entries was not changed.
template <class T>
void revert_stretch(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                    const std::uint64_t* words, const std::uint32_t* indices, const float* values, std::size_t taken) {
  for (std::size_t i = 0; i < n; ++i) {
    const bool large = (words[i / kWord] >> (i % kWord) & 1) != 0;
    if (!large) memory[first + i] = reverted<T>(gradient, memory[first + i], first + i);
  }
  for (std::size_t t = 0; t < taken; ++t) memory[indices[t]] = reverted<T>(gradient, values[t], indices[t]);
}

// Takes back the entries [first, first + n): puts the taken entries back and subtracts the gradient.
template <class T>
void revert(const Gradient& gradient, std::size_t first, std::size_t n, float* memory, const std::uint32_t* indices,
            const float* values, std::size_t taken) {
  for (std::size_t t = 0; t < taken; ++t) memory[indices[t]] = values[t];
  for (std::size_t i = first; i < first + n; ++i) memory[i] = reverted<T>(gradient, memory[i], i);
}

template <class T, bool kPlain>
Taken accumulate_and_take_typed(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                                std::uint32_t threshold, std::uint32_t* indices, float* values, double* lanes) {
  const auto below = hn::Set(kInts, static_cast<std::int32_t>(threshold - 1));
  std::uint64_t words[kStretch / kWord];
  std::uint8_t where[kStretch / kWord];
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < n; begin += kStretch) {
    const std::size_t size = HWY_MIN(kStretch, n - begin);
    const std::size_t whole = size / kWord;
    const std::size_t rest = size % kWord;
    const std::size_t start = first + begin;
    Sums sums(lanes);
    for (std::size_t w = 0; w < whole; ++w) {
      words[w] = accumulate_word<T, kPlain>(gradient, start + w * kWord, memory, below, sums);
    }
    sums.store(lanes);
    if (rest != 0) {
      words[whole] = accumulate_rest<T>(gradient, start + whole * kWord, rest, memory, threshold, lanes);
    }
    const std::size_t count_before = count;
    const std::size_t busy = squeeze(words, whole + (rest != 0 ? 1 : 0), where);
    for (std::size_t b = 0; b < busy; ++b) {
      const std::size_t base = start + where[b] * kWord;
      std::uint64_t word = words[where[b]];
      do {
        const std::size_t i = base + static_cast<std::size_t>(__builtin_ctzll(word));
        word &= word - 1;
        const float a = accumulated<T>(gradient, memory, i);
        if (HWY_UNLIKELY(key_of(a) >= kInfinityKey)) {
          revert_stretch<T>(gradient, start, size, memory, words, indices + count_before, values + count_before,
                            count - count_before);
          revert<T>(gradient, first, begin, memory, indices, values, count_before);
          return {0, i};
        }
        indices[count] = static_cast<std::uint32_t>(i);
        values[count] = a;
        memory[i] = 0.0F;
        ++count;
      } while (word != 0);
    }
  }
  return {count, kNoneBad};
}

Taken accumulate_and_take(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, double* lanes) {
  const bool plain = gradient.scale == 1.0F && gradient.decay == 1.0F;
  return with_type(gradient.type, [&]<class T>(T*) {
    return plain ? accumulate_and_take_typed<T, true>(gradient, first, n, memory, threshold, indices, values, lanes)
                 : accumulate_and_take_typed<T, false>(gradient, first, n, memory, threshold, indices, values, lanes);
  });
}

std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values) {
  const auto below = hn::Set(kInts, static_cast<std::int32_t>(threshold - 1));
  std::size_t count = 0;
  const auto move_out = [&](std::size_t base, std::uint64_t word) {
    for (; word != 0; word &= word - 1) {
      const std::size_t i = base + static_cast<std::size_t>(__builtin_ctzll(word));
      indices[count] = static_cast<std::uint32_t>(i);
      values[count] = memory[i];
      memory[i] = 0.0F;
      ++count;
    }
  };
  const std::size_t whole = n / kWord * kWord;
  for (std::size_t begin = 0; begin < whole; begin += kWord) {
    std::uint64_t word = 0;
    for (std::size_t v = 0; v < kWord / kWidth; ++v) {
      store_mask(at_or_above(hn::LoadU(kFloats, memory + first + begin + v * kWidth), below), v, word);
    }
    move_out(first + begin, word);
  }
  std::uint64_t word = 0;
  for (std::size_t i = whole; i < n; ++i) {
    word |= static_cast<std::uint64_t>(key_of(memory[first + i]) >= threshold) << (i - whole);
  }
  move_out(first + whole, word);
  return count;
}

template <class T>
std::size_t accumulate_into_typed(const Gradient& gradient, std::size_t first, std::size_t n, const float* memory,
                                  float* all, double* lanes) {
  const T* numbers = static_cast<const T*>(gradient.data);
  const auto scale = hn::Set(kFloats, gradient.scale);
  const auto decay = hn::Set(kFloats, gradient.decay);
  auto top = hn::Zero(kInts);  // the largest key so far: checked once, at the end, to see whether all sums are finite
  std::uint32_t top_of_rest = 0;
  Sums sums(lanes);
  const std::size_t whole = n / kLanes * kLanes;
  for (std::size_t i = first; i < first + whole; i += kWidth) {
    const Float a = hn::Add(hn::Mul(decay, hn::LoadU(kFloats, memory + i)), hn::Mul(scale, load(numbers + i)));
    hn::StoreU(a, kFloats, all + i);
    top = hn::Max(top, hn::And(hn::BitCast(kInts, a), hn::Set(kInts, 0x7FFFFFFF)));
    add_squares(a, (i - first) / kWidth % kVectors, sums.at);
  }
  sums.store(lanes);
  for (std::size_t i = whole; i < n; ++i) {
    const float a = accumulated<T>(gradient, memory, first + i);
    all[first + i] = a;
    top_of_rest = HWY_MAX(top_of_rest, key_of(a));
    const double wide = a;
    lanes[i % kLanes] += wide * wide;
  }
  const auto largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(kInts, top)));
  if (HWY_LIKELY(HWY_MAX(largest, top_of_rest) < kInfinityKey)) return kNoneBad;
  std::size_t bad = first;
  while (key_of(all[bad]) < kInfinityKey) ++bad;
  return bad;
}

std::size_t accumulate_into(const Gradient& gradient, std::size_t first, std::size_t n, const float* memory, float* all,
                            double* lanes) {
  return with_type(gradient.type,
                   [&]<class T>(T*) { return accumulate_into_typed<T>(gradient, first, n, memory, all, lanes); });
}

template <class T>
void sum_squares_typed(const Gradient& gradient, std::size_t first, std::size_t n, double* lanes) {
  const T* numbers = static_cast<const T*>(gradient.data) + first;
  Sums sums(lanes);
  const std::size_t whole = n / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kWidth) add_squares(load(numbers + i), i / kWidth % kVectors, sums.at);
  sums.store(lanes);
  for (std::size_t i = whole; i < n; ++i) {
    const double wide = as_float(numbers, i);
    lanes[i % kLanes] += wide * wide;
  }
}

void sum_squares(const Gradient& gradient, std::size_t first, std::size_t n, double* lanes) {
  with_type(gradient.type, [&]<class T>(T*) { sum_squares_typed<T>(gradient, first, n, lanes); });
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

Taken accumulate_and_take(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, double* lanes) noexcept {
  return HWY_DYNAMIC_DISPATCH(accumulate_and_take)(gradient, first, n, memory, threshold, indices, values, lanes);
}

std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(take)(first, n, memory, threshold, indices, values);
}

std::size_t accumulate_into(const Gradient& gradient, std::size_t first, std::size_t n, const float* memory, float* all,
                            double* lanes) noexcept {
  return HWY_DYNAMIC_DISPATCH(accumulate_into)(gradient, first, n, memory, all, lanes);
}

void sum_squares(const Gradient& gradient, std::size_t first, std::size_t n, double* lanes) noexcept {
  HWY_DYNAMIC_DISPATCH(sum_squares)(gradient, first, n, lanes);
}

void subtract(const Gradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept {
  with_type(gradient.type, [&]<class T>(T*) {
    for (std::size_t i = first; i < first + n; ++i) memory[i] = reverted<T>(gradient, memory[i], i);
  });
}

float number_at(const Gradient& gradient, std::size_t i) noexcept {
  return with_type(gradient.type, [&]<class T>(T*) { return as_float(static_cast<const T*>(gradient.data), i); });
}

double sum_lanes(const double* lanes) noexcept {
  std::array<double, kLanes> sum;
  for (std::size_t i = 0; i < kLanes; ++i) sum[i] = lanes[i];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
