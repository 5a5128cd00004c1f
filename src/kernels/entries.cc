// Plain loops that vectorise, compiled for each SIMD level (see golomb.cc).
#include "kernels/entries.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entries.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

bool are_ascending(std::span<const std::uint32_t> indices) {
  std::uint32_t bad = 0;
  for (std::size_t i = 1; i < indices.size(); ++i) bad |= indices[i] <= indices[i - 1] ? 1U : 0U;
  return bad == 0;
}

std::size_t count_runs(std::span<const std::uint32_t> indices) {
  std::uint32_t runs = indices.empty() ? 0 : 1;
  for (std::size_t i = 1; i < indices.size(); ++i) runs += indices[i] == indices[i - 1] + 1 ? 0U : 1U;
  return runs;
}

void find_gaps(const std::uint32_t* indices, std::span<std::uint32_t> gaps) {
  std::uint32_t* HWY_RESTRICT const to = gaps.data();
  for (std::size_t i = 0; i < gaps.size(); ++i) to[i] = indices[i] - *(indices + i - 1) - 1;
}

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000;  // all of these bits are set in NaN and infinity
  std::uint32_t bad = 0;
  for (const float value : values) bad |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
  return bad == 0;
}

template <class Code>
HWY_INLINE std::uint32_t code_at(const std::byte* codes, std::size_t i) {
  Code code;
  std::memcpy(&code, codes + sizeof(Code) * i, sizeof(Code));
  return code;
}

template <class Code>
constexpr std::uint32_t kMagnitude = static_cast<Code>(~Code{0}) >> 1;

template <class Code>
HWY_INLINE MagnitudeRange range_of_codes(const std::byte* codes, std::size_t count) {
  MagnitudeRange range;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = code_at<Code>(codes, i) & kMagnitude<Code>;
    range.least = std::min(range.least, magnitude);
    range.most = std::max(range.most, magnitude);
  }
  return range;
}

MagnitudeRange range_of(FloatCodes type, const std::byte* codes, std::size_t count) {
  return type == FloatCodes::of_32_bits ? range_of_codes<std::uint32_t>(codes, count)
                                        : range_of_codes<std::uint16_t>(codes, count);
}

template <class Code, int kFold>
HWY_INLINE void fold_all(std::uint32_t reference, const std::byte* codes, std::span<std::uint32_t> numbers) {
  constexpr int kSign = 8 * sizeof(Code) - 1;
  const Fold fold{kFold, reference};
  std::uint32_t* HWY_RESTRICT const to = numbers.data();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t code = code_at<Code>(codes, i);
    to[i] = fold.number(code & kMagnitude<Code>, code >> kSign);
  }
}

template <class Code>
HWY_INLINE void fold_all(const Fold& fold, const std::byte* codes, std::span<std::uint32_t> numbers) {
  return fold.fold == 0 ? fold_all<Code, 0>(fold.reference, codes, numbers)
                        : fold_all<Code, 1>(fold.reference, codes, numbers);
}

void fold_codes(FloatCodes type, const Fold& fold, const std::byte* codes, std::span<std::uint32_t> numbers) {
  return type == FloatCodes::of_32_bits ? fold_all<std::uint32_t>(fold, codes, numbers)
                                        : fold_all<std::uint16_t>(fold, codes, numbers);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(are_ascending);
HWY_EXPORT(count_runs);
HWY_EXPORT(find_gaps);
HWY_EXPORT(all_finite);
HWY_EXPORT(range_of);
HWY_EXPORT(fold_codes);
}  // namespace

bool are_ascending(std::span<const std::uint32_t> indices) noexcept {
  return HWY_DYNAMIC_DISPATCH(are_ascending)(indices);
}

std::size_t count_runs(std::span<const std::uint32_t> indices) noexcept {
  return HWY_DYNAMIC_DISPATCH(count_runs)(indices);
}

void find_gaps(const std::uint32_t* indices, std::span<std::uint32_t> gaps) noexcept {
  HWY_DYNAMIC_DISPATCH(find_gaps)(indices, gaps);
}

bool all_finite(std::span<const float> values) noexcept { return HWY_DYNAMIC_DISPATCH(all_finite)(values); }

MagnitudeRange range_of(FloatCodes type, const std::byte* codes, std::size_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(range_of)(type, codes, count);
}

void fold_codes(FloatCodes type, const Fold& fold, const std::byte* codes, std::span<std::uint32_t> numbers) noexcept {
  HWY_DYNAMIC_DISPATCH(fold_codes)(type, fold, codes, numbers);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
