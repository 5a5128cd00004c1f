// A value format that is not in the library: f32 without its lowest 8 bits.
#include <bit>
#include <cstring>

#include "codec/value_format.h"

namespace sparsewire {

std::size_t size_f24(std::size_t count, std::size_t /*block*/) noexcept { return 3 * count; }

void encode_f24(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) >> 8;
    std::memcpy(out + 3 * i, &bits, 3);
    if (received != nullptr) received[i] = std::bit_cast<float>(bits << 8);
  }
}

bool decode_f24(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, section + 3 * i, 3);
    values[i] = std::bit_cast<float>(bits << 8);
  }
  return all_finite(values);
}

}  // namespace sparsewire
