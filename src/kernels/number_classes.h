// The class that a number in blocks (numbers.h) is in, for plan_numbers.cc and write_numbers.cc. They are compiled for
// each SIMD level: this is included once for each, so it has no #pragma once.
#if defined(SPARSEWIRE_KERNELS_NUMBER_CLASSES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPARSEWIRE_KERNELS_NUMBER_CLASSES_H
#undef SPARSEWIRE_KERNELS_NUMBER_CLASSES_H
#else
#define SPARSEWIRE_KERNELS_NUMBER_CLASSES_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/numbers.h"

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<std::uint32_t, kNumberBlock>;
using V = hn::Vec<D>;

// Aligned for vectors.
struct alignas(64) Block {
  std::uint32_t numbers[kNumberBlock];
};

// The place of a number in the code with parameter `parameter`.
struct Place {
  std::uint32_t rank;    // of its class
  std::uint32_t longer;  // how many bits more than the parameter the rest has
  std::uint32_t first;   // the smallest number of the class, divided by 2^parameter
};

HWY_INLINE Place place_of(std::uint32_t number, std::uint32_t parameter, std::uint32_t linear) {
  const std::uint32_t quotient = number >> parameter;
  const std::uint32_t base = std::min(quotient, linear);
  const std::uint64_t above = std::uint64_t{quotient} - base + 1;
  const auto longer = static_cast<std::uint32_t>(std::bit_width(above) - 1);
  return {base + longer, longer, static_cast<std::uint32_t>(base + (std::uint64_t{1} << longer) - 1)};
}

constexpr std::uint32_t kExact = 1U << 24;  // below, a float holds the integer exactly

// 127 + floor(log2 x) for x in [1, 2^24].
HWY_INLINE V exponent(D d, V x) {
  const hn::RebindToFloat<D> df;
  const hn::RebindToSigned<D> di;
  return hn::ShiftRight<23>(hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, x))));
}

// Numbers divided by 2^parameter, as a class would have them if all had the same size, and what is above `linear`.
struct Quotients {
  V base;   // at most linear
  V above;  // 1 for a number at or below linear
};

HWY_INLINE Quotients divide(D d, const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear) {
  const V quotient = hn::ShiftRightSame(hn::LoadU(d, numbers), static_cast<int>(parameter));
  const V base = hn::Min(quotient, hn::Set(d, linear));
  return {base, hn::Add(hn::Sub(quotient, base), hn::Set(d, 1))};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();
#endif
