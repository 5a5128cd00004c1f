// Values as they are.
#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/value_format.h"

namespace sparsewire {

bool all_finite(std::span<const float> values) noexcept {
  std::uint32_t largest = 0;  // the bits of magnitudes are in the order of the magnitudes, infinity and NaN on top
  for (const float value : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  return largest < 0x7F800000U;
}

std::size_t size_f32(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(float); }

void encode_f32(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
  if (received != nullptr && received != values.data()) std::copy(values.begin(), values.end(), received);
}

bool decode_f32(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  if (!values.empty()) std::memcpy(values.data(), section, values.size_bytes());
  return all_finite(values);
}

}  // namespace sparsewire
