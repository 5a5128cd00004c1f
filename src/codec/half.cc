// 16-bit values: f16 (IEEE binary16) and bf16 (the upper half of an f32). To nearest, ties to even; what is too large
// becomes the largest finite number, not infinity.
//
// Integers but for two multiplications by powers of two and one addition that rounds: every machine gives the same
// bits, and compilers vectorise the loops.
#include "codec/half.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/value_format.h"

namespace sparsewire {
namespace {

constexpr std::uint32_t kSign = 0x80000000;

struct F16 {
  static constexpr std::uint32_t kInfinity = 0x7C00;

  static std::uint16_t narrow(float value) noexcept {
    constexpr std::uint32_t kLargest = 0x477FE000;      // 65504
    constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
    constexpr std::uint32_t kRebias = 112U << 23;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = std::min(bits & ~kSign, kLargest);
    const std::uint32_t normal = (magnitude - kRebias + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    // 0.5 has its last bit where the last bit of a subnormal half is: the addition rounds to it.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    return static_cast<std::uint16_t>((magnitude < kLeastNormal ? subnormal : normal) | (bits & kSign) >> 16);
  }

  static float widen(std::uint16_t half) noexcept {
    constexpr float kRebias = 0x1p112F;
    const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * kRebias;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | (half & 0x8000U) << 16);
  }
};

struct BF16 {
  static constexpr std::uint32_t kInfinity = 0x7F80;

  static std::uint16_t narrow(float value) noexcept {
    constexpr std::uint32_t kLargest = 0x7F7F0000;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = std::min(bits & ~kSign, kLargest);
    return static_cast<std::uint16_t>((magnitude + 0x7FFF + (magnitude >> 16 & 1)) >> 16 | (bits & kSign) >> 16);
  }

  static float widen(std::uint16_t half) noexcept { return std::bit_cast<float>(std::uint32_t{half} << 16); }
};

constexpr std::size_t kStretch = 1024;  // values that pass through a buffer at a time

template <class Format>
void encode_half(std::span<const float> values, std::byte* out, float* received) {
  std::uint16_t halves[kStretch];
  for (std::size_t done = 0; done < values.size(); done += kStretch) {
    const std::size_t count = std::min(kStretch, values.size() - done);
    for (std::size_t i = 0; i < count; ++i) halves[i] = Format::narrow(values[done + i]);
    std::memcpy(out + done * sizeof(std::uint16_t), halves, count * sizeof(std::uint16_t));
    if (received == nullptr) continue;
    for (std::size_t i = 0; i < count; ++i) received[done + i] = Format::widen(halves[i]);
  }
}

template <class Format>
bool decode_half(const std::byte* section, std::span<float> values) {
  std::uint16_t halves[kStretch];
  std::uint32_t largest = 0;
  for (std::size_t done = 0; done < values.size(); done += kStretch) {
    const std::size_t count = std::min(kStretch, values.size() - done);
    std::memcpy(halves, section + done * sizeof(std::uint16_t), count * sizeof(std::uint16_t));
    for (std::size_t i = 0; i < count; ++i) {
      values[done + i] = Format::widen(halves[i]);
      largest = std::max(largest, halves[i] & 0x7FFFU);
    }
  }
  return largest < Format::kInfinity;
}

}  // namespace

std::uint16_t to_bf16(float value) noexcept { return BF16::narrow(value); }
float from_bf16(std::uint16_t bits) noexcept { return BF16::widen(bits); }

std::size_t size_f16(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(std::uint16_t); }
std::size_t size_bf16(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(std::uint16_t); }

void encode_f16(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  encode_half<F16>(values, out, received);
}
void encode_bf16(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  encode_half<BF16>(values, out, received);
}

bool decode_f16(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  return decode_half<F16>(section, values);
}
bool decode_bf16(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  return decode_half<BF16>(section, values);
}

}  // namespace sparsewire
