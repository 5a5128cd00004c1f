// This is scalar code, but it is compiled for each SIMD level: processors with AVX2 also have shifts that do not touch
// the flags, and count trailing zeros in one instruction.
#include "kernels/golomb.h"

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/golomb.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/add_up.h"  // must come after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kStretch = 64;  // gaps whose codes are computed together, before they are written
using Stretch = std::array<std::uint32_t, kStretch>;

// Computes the codes of a stretch of gaps and their lengths, in loops that vectorise. False if a gap is too large for
// that: a code must fit into 32 bits, a gap into the 24 bits of a float's mantissa.
HWY_INLINE bool make_codes(const GolombCode& code, const Stretch& gaps, Stretch& codes, Stretch& lengths) {
  constexpr std::uint32_t kMostGap = 1U << 24;
  const auto divisor = static_cast<std::int32_t>(code.divisor());
  const float inverse = 1.0F / static_cast<float>(code.divisor());
  const std::uint32_t shorter = code.shorter();
  const auto bits = static_cast<std::uint32_t>(code.bits());
  std::uint32_t largest = 0;
  std::uint32_t longest = 0;
  for (std::size_t i = 0; i < kStretch; ++i) {
    // The quotient is wrong by one at most; then the remainder is out of range, and both are corrected.
    const auto gap = static_cast<std::int32_t>(std::min(gaps[i], kMostGap));
    auto quotient = static_cast<std::int32_t>(static_cast<float>(gap) * inverse);
    std::int32_t rest = gap - quotient * divisor;
    const std::int32_t less = rest < 0 ? 1 : 0;
    const std::int32_t more = rest >= divisor ? 1 : 0;
    quotient += more - less;
    rest += (less - more) * divisor;
    const auto remainder = static_cast<std::uint32_t>(rest);
    const std::uint32_t longer = remainder >= shorter ? 1 : 0;
    const std::uint32_t sum = remainder + (shorter & (0 - longer));
    const std::uint32_t binary = (longer != 0 ? sum >> 1 : sum) | (sum & longer) << (bits - 1);
    codes[i] = (binary << 1 | 1) << (static_cast<std::uint32_t>(quotient) & 31);
    lengths[i] = static_cast<std::uint32_t>(quotient) + bits + longer;
    largest |= gaps[i];
    longest = std::max(longest, lengths[i]);
  }
  return largest < kMostGap && longest <= 32;
}

std::byte* golomb_encode(const GolombCode& code, std::span<const std::uint32_t> indices, std::size_t first,
                         std::size_t step, std::byte* out) {
  BitWriter writer(out);
  std::size_t i = first;
  if (i == 0 && !indices.empty()) {
    writer.put(code, indices[0]);
    i = step;
  }
  Stretch gaps;
  Stretch codes;
  Stretch lengths;
  const std::uint32_t* const index = indices.data();
  for (; i + (kStretch - 1) * step < indices.size(); i += kStretch * step) {
    for (std::size_t j = 0; j < kStretch; ++j) gaps[j] = index[i + j * step] - index[i + j * step - 1] - 1;
    if (make_codes(code, gaps, codes, lengths)) {
      for (std::size_t j = 0; j < kStretch; ++j) writer.put(codes[j], static_cast<int>(lengths[j]));
    } else {
      for (const std::uint32_t gap : gaps) writer.put(code, gap);
    }
  }
  for (; i < indices.size(); i += step) writer.put(code, index[i] - index[i - 1] - 1);
  return writer.end();
}

constexpr std::size_t kRounds = kStretch / kGolombLanes;  // each reads one code of every stream
constexpr int kFastBits = 25;  // fit into a window beside a quotient of 32 bits; larger divisors are rare

// The codes of a stretch, split into quotients and remainders.
struct Codes {
  Stretch quotients;
  Stretch rests;  // the bits after the 1 that ends the quotient: the remainder, and bits of later codes
};

// Reads the codes of a stretch and advances `positions`. False if a quotient has more than 31 zeros; then `positions`
// is unchanged. Reads at most 8 bytes after the last code.
HWY_INLINE bool take_codes(const GolombCode& code, const std::byte* bytes,
                           std::array<std::uint64_t, kGolombLanes>& positions, Codes& codes) {
  const auto bits = static_cast<std::uint64_t>(code.bits());
  const std::uint64_t mask = (std::uint64_t{1} << (bits - 1)) - 1;
  const std::uint64_t shorter = code.shorter();
  std::array<std::uint64_t, kGolombLanes> at = positions;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kStretch; i += kGolombLanes) {
    for (std::size_t lane = 0; lane < kGolombLanes; ++lane) {
      std::uint64_t window;
      std::memcpy(&window, bytes + at[lane] / 8, 8);
      window >>= at[lane] % 8;
      const auto zeros = static_cast<std::uint64_t>(std::countr_zero(window));
      window = window >> (zeros & 63) >> 1;  // 64 zeros are refused below
      at[lane] += zeros + bits + ((window & mask) >= shorter ? 1 : 0);
      all |= zeros;
      codes.quotients[i + lane] = static_cast<std::uint32_t>(zeros);
      codes.rests[i + lane] = static_cast<std::uint32_t>(window);
    }
  }
  if (all > 31) return false;
  positions = at;
  return true;
}

// Computes the gaps of a stretch.
HWY_INLINE void make_gaps(const GolombCode& code, const Codes& codes, Stretch& gaps) {
  const auto bits = static_cast<std::uint32_t>(code.bits());
  const std::uint32_t mask = (1U << (bits - 1)) - 1;
  const std::uint32_t shorter = code.shorter();
  const std::uint32_t divisor = code.divisor();
  for (std::size_t i = 0; i < kStretch; ++i) {
    const std::uint32_t low = codes.rests[i] & mask;
    const std::uint32_t bit = codes.rests[i] >> (bits - 1) & 1;
    gaps[i] = codes.quotients[i] * divisor + low + (low >= shorter ? low + bit - shorter : 0);
  }
}

bool golomb_decode(const GolombCode& code, std::span<const std::byte> bytes,
                   const std::array<std::size_t, kGolombLanes + 1>& begins, std::uint64_t dim, std::size_t count,
                   std::uint32_t* indices) {
  std::array<std::uint64_t, kGolombLanes> at{};
  for (std::size_t lane = 0; lane < kGolombLanes; ++lane) at[lane] = begins[lane] * 8;
  // A stream whose position is below `safe` can read a stretch without leaving `bytes`. It may read into the next
  // stream; that is checked at the end.
  const std::uint64_t end = begins[kGolombLanes] * 8;
  constexpr std::uint64_t kMargin = kRounds * (64 + kFastBits + 1) + 64;  // a window without a 1 counts as 64 zeros
  const std::uint64_t safe = end < kMargin || code.bits() > kFastBits ? 0 : end - kMargin;
  std::uint64_t next = 0;  // the lowest possible value of the next index
  Codes codes;
  Stretch gaps;

  std::size_t i = 0;
  while (i < count) {
    const bool is_safe = *std::max_element(at.begin(), at.end()) < safe && count - i >= kStretch;
    if (is_safe && take_codes(code, bytes.data(), at, codes)) {
      make_gaps(code, codes, gaps);
      if (!add_up(gaps, dim, next, indices + i)) return false;
      i += kStretch;
      continue;
    }
    for (std::size_t j = 0; j < kStretch && i < count; ++j, ++i) {
      const std::size_t lane = i % kGolombLanes;
      BitReader reader(bytes, at[lane], begins[lane + 1] * 8);
      std::uint64_t gap;
      if (next >= dim || !reader.get(code, dim - 1 - next, gap)) return false;
      indices[i] = static_cast<std::uint32_t>(next + gap);
      next += gap + 1;
      at[lane] = reader.position();
    }
  }
  for (std::size_t lane = 0; lane < kGolombLanes; ++lane) {
    if (!BitReader(bytes, at[lane], begins[lane + 1] * 8).is_finished()) return false;
  }
  return true;
}

std::uint64_t golomb_cost(const GolombCode& code, std::span<const float> gaps) {
  const auto divisor = static_cast<float>(code.divisor());
  const float inverse = 1.0F / divisor;
  const auto shorter = static_cast<float>(code.shorter());
  std::int64_t cost = static_cast<std::int64_t>(gaps.size()) * code.bits();
  for (const float gap : gaps) {
    const auto quotient = static_cast<std::int32_t>(gap * inverse);
    const float remainder = gap - static_cast<float>(quotient) * divisor;
    cost += quotient + static_cast<std::int32_t>(remainder >= shorter);
  }
  return static_cast<std::uint64_t>(cost);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(golomb_encode);
HWY_EXPORT(golomb_decode);
HWY_EXPORT(golomb_cost);
}  // namespace

std::byte* golomb_encode(const GolombCode& code, std::span<const std::uint32_t> indices, std::size_t first,
                         std::size_t step, std::byte* out) noexcept {
  return HWY_DYNAMIC_DISPATCH(golomb_encode)(code, indices, first, step, out);
}

bool golomb_decode(const GolombCode& code, std::span<const std::byte> bytes,
                   const std::array<std::size_t, kGolombLanes + 1>& begins, std::uint64_t dim, std::size_t count,
                   std::uint32_t* indices) noexcept {
  return HWY_DYNAMIC_DISPATCH(golomb_decode)(code, bytes, begins, dim, count, indices);
}

std::uint64_t golomb_cost(const GolombCode& code, std::span<const float> gaps) noexcept {
  return HWY_DYNAMIC_DISPATCH(golomb_cost)(code, gaps);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
