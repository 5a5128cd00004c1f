// Scalar code, compiled for each level all the same: AVX2 and later bring shifts that leave the flags alone and count
// zeros in one step.
#include "kernels/golomb.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)  // as in sweep.cc
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/golomb.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

std::byte* golomb_encode(const GolombCode& code, std::span<const std::uint32_t> indices, std::size_t first,
                         std::size_t step, std::byte* out) {
  BitWriter writer(out);
  const GolombCode local = code;
  std::size_t i = first;
  if (i == 0 && !indices.empty()) {
    writer.put(local, indices[0]);
    i = step;
  }
  for (; i < indices.size(); i += step) writer.put(local, indices[i] - indices[i - 1] - 1);
  return writer.end();
}

// What the four streams have in common, and how far each was read.
struct Lanes {
  const std::byte* bytes;
  std::uint64_t divisor;
  std::uint64_t shorter;
  std::uint64_t mask;
  int bits;
  std::array<std::uint64_t, kGolombLanes> at;
};

constexpr std::uint64_t kFastZeros =
    24;                             // a longer quotient is read carefully: 24 + 1 + 32 bits are what a window shows
constexpr std::size_t kRounds = 8;  // of four gaps, between two looks at the ends

HWY_INLINE std::uint64_t window_at(const Lanes& lanes, std::size_t lane) {
  std::uint64_t window;
  std::memcpy(&window, lanes.bytes + lanes.at[lane] / 8, 8);
  return window >> lanes.at[lane] % 8;
}

HWY_INLINE std::uint64_t gap_in(Lanes& lanes, std::size_t lane, std::uint64_t window) {
  const int zeros = std::countr_zero(window);
  window >>= zeros;
  window >>= 1;
  const std::uint64_t low = window & lanes.mask;
  const std::uint64_t extended = (low << 1 | (window >> (lanes.bits - 1) & 1)) - lanes.shorter;
  const bool longer = low >= lanes.shorter;
  lanes.at[lane] += static_cast<std::uint64_t>(zeros + lanes.bits) + static_cast<std::uint64_t>(longer);
  return static_cast<std::uint64_t>(zeros) * lanes.divisor + (longer ? extended : low);
}

bool golomb_decode(const GolombCode& code, std::span<const std::byte> bytes,
                   const std::array<std::size_t, kGolombLanes + 1>& begins, std::uint64_t dim, std::size_t count,
                   std::uint32_t* indices) {
  Lanes lanes{.bytes = bytes.data(),
              .divisor = code.divisor(),
              .shorter = code.shorter(),
              .mask = (std::uint64_t{1} << (code.bits() - 1)) - 1,
              .bits = code.bits(),
              .at = {}};
  for (std::size_t lane = 0; lane < kGolombLanes; ++lane) lanes.at[lane] = begins[lane] * 8;
  // Up to here every lane has bytes for kRounds windows, be they its own or not: that is looked at in the end.
  const std::uint64_t end = begins[kGolombLanes] * 8;
  const std::uint64_t margin = 64 * (kRounds + 1);
  const std::uint64_t safe = end < margin ? 0 : end - margin;
  std::uint64_t next = 0;  // the lowest index that may come

  std::size_t i = 0;
  while (i < count) {
    const std::uint64_t furthest = std::max(std::max(lanes.at[0], lanes.at[1]), std::max(lanes.at[2], lanes.at[3]));
    if (furthest < safe && count - i >= kGolombLanes * kRounds) {
      std::size_t round = 0;
      for (; round < kRounds; ++round, i += kGolombLanes) {
        const std::uint64_t w0 = window_at(lanes, 0);
        const std::uint64_t w1 = window_at(lanes, 1);
        const std::uint64_t w2 = window_at(lanes, 2);
        const std::uint64_t w3 = window_at(lanes, 3);
        constexpr std::uint64_t kAny = (std::uint64_t{1} << kFastZeros) - 1;
        if ((w0 & kAny) == 0 || (w1 & kAny) == 0 || (w2 & kAny) == 0 || (w3 & kAny) == 0) [[unlikely]]
          break;
        const std::uint64_t i0 = next + gap_in(lanes, 0, w0);
        const std::uint64_t i1 = i0 + 1 + gap_in(lanes, 1, w1);
        const std::uint64_t i2 = i1 + 1 + gap_in(lanes, 2, w2);
        const std::uint64_t i3 = i2 + 1 + gap_in(lanes, 3, w3);
        indices[i] = static_cast<std::uint32_t>(i0);
        indices[i + 1] = static_cast<std::uint32_t>(i1);
        indices[i + 2] = static_cast<std::uint32_t>(i2);
        indices[i + 3] = static_cast<std::uint32_t>(i3);
        next = i3 + 1;
      }
      if (next > dim) return false;
      if (round == kRounds) continue;
    }
    for (std::size_t lane = 0; lane < kGolombLanes && i < count; ++lane, ++i) {
      BitReader reader(bytes, lanes.at[lane], begins[lane + 1] * 8);
      std::uint64_t gap;
      if (next >= dim || !reader.get(code, dim - 1 - next, gap)) return false;
      indices[i] = static_cast<std::uint32_t>(next + gap);
      next += gap + 1;
      lanes.at[lane] = reader.position();
    }
  }
  for (std::size_t lane = 0; lane < kGolombLanes; ++lane) {
    if (!BitReader(bytes, lanes.at[lane], begins[lane + 1] * 8).is_finished()) return false;
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
