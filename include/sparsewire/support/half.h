// 16-bit floats: f16 (IEEE binary16) and bf16 (the upper half of an f32), as their bit patterns.
//
// The conversions use integer operations, except for one multiplication by a power of two and one addition that rounds.
// So every machine gives the same bits, and compilers vectorise loops over them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sparsewire {

constexpr float from_bf16(std::uint16_t bits) noexcept { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Exact for every f16, including subnormals, infinities and NaN. The multiplication adjusts the exponent bias.
constexpr float from_f16(std::uint16_t bits) noexcept {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  const std::uint32_t shifted = (bits & 0x7FFFU) << 13;
  const float magnitude = std::bit_cast<float>(shifted) * 0x1p112F;
  const std::uint32_t special = shifted >= 0x7C00U << 13 ? kInfinity : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | (bits & 0x8000U) << 16);
}

// Rounds to nearest, ties to even; values that are too large become the largest finite number, not infinity. REQUIRES:
// not NaN. So does to_f16.
constexpr std::uint16_t to_bf16(float value) noexcept {
  constexpr std::uint32_t kLargest = 0x7F7F0000;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = std::min(bits & 0x7FFFFFFFU, kLargest);
  return static_cast<std::uint16_t>((magnitude + 0x7FFF + (magnitude >> 16 & 1)) >> 16 | (bits >> 16 & 0x8000U));
}

constexpr std::uint16_t to_f16(float value) noexcept {
  constexpr std::uint32_t kLargest = 0x477FE000;      // 65504
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kRebias = 112U << 23;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = std::min(bits & 0x7FFFFFFFU, kLargest);
  const std::uint32_t normal = (magnitude - kRebias + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  // The last bit of the float 0.5 has the weight of the last bit of a subnormal f16 (2^-24), so that the addition
  // rounds to that bit.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  return static_cast<std::uint16_t>((magnitude < kLeastNormal ? subnormal : normal) | (bits >> 16 & 0x8000U));
}

}  // namespace sparsewire
