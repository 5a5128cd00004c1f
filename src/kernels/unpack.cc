// Plain loops that vectorise, compiled for each SIMD level.
#include "kernels/unpack.h"

#include <algorithm>

#include "kernels/targets.h"  // must come before foreach_target.h
#include "sparsewire/support/half.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/unpack.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

// Calls put(i, magnitude, minus) for every number; returns the largest magnitude. There is none for some numbers of
// other encoders: they give 2^31 or more.
template <int kFold, class Put>
HWY_INLINE std::uint32_t unfold(std::uint32_t reference, std::span<const std::uint32_t> numbers, Put&& put) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t distance = numbers[i] >> 1;
    const std::uint32_t magnitude = reference + (kFold == 0 ? distance : distance >> 1 ^ (0 - (distance & 1)));
    largest = std::max(largest, magnitude);
    put(i, magnitude, numbers[i] & 1);
  }
  return largest;
}

template <class Put>
HWY_INLINE std::uint32_t unfold(const Fold& fold, std::span<const std::uint32_t> numbers, Put&& put) {
  return fold.fold == 0 ? unfold<0>(fold.reference, numbers, put) : unfold<1>(fold.reference, numbers, put);
}

bool unpack_f32(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  return unfold(fold, numbers, [&](std::size_t i, std::uint32_t magnitude, std::uint32_t minus) HWY_ATTR {
           values[i] = std::bit_cast<float>(magnitude | minus << 31);
         }) < kInfinity;
}

bool unpack_f16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) {
  constexpr std::uint32_t kInfinity = 0x7C00;
  return unfold(fold, numbers, [&](std::size_t i, std::uint32_t magnitude, std::uint32_t minus) HWY_ATTR {
           values[i] = from_f16(static_cast<std::uint16_t>(magnitude | minus << 15));
         }) < kInfinity;
}

bool unpack_bf16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) {
  constexpr std::uint32_t kInfinity = 0x7F80;
  return unfold(fold, numbers, [&](std::size_t i, std::uint32_t magnitude, std::uint32_t minus) HWY_ATTR {
           values[i] = std::bit_cast<float>(magnitude << 16 | minus << 31);
         }) < kInfinity;
}

bool unpack_integers(std::uint32_t most, float scale, const Fold& fold, std::span<const std::uint32_t> numbers,
                     float* values) {
  std::uint32_t minus_zeros = 0;
  const std::uint32_t largest =
      unfold(fold, numbers, [&](std::size_t i, std::uint32_t magnitude, std::uint32_t minus) HWY_ATTR {
        minus_zeros |= magnitude == 0 ? minus : 0;
        const auto whole = static_cast<std::int32_t>((magnitude ^ (0 - minus)) + minus);
        values[i] = static_cast<float>(whole) * scale;
      });
  return largest <= most && minus_zeros == 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(unpack_f32);
HWY_EXPORT(unpack_f16);
HWY_EXPORT(unpack_bf16);
HWY_EXPORT(unpack_integers);
}  // namespace

bool unpack_f32(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(unpack_f32)(fold, numbers, values);
}

bool unpack_f16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(unpack_f16)(fold, numbers, values);
}

bool unpack_bf16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(unpack_bf16)(fold, numbers, values);
}

bool unpack_integers(std::uint32_t most, float scale, const Fold& fold, std::span<const std::uint32_t> numbers,
                     float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(unpack_integers)(most, scale, fold, numbers, values);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
