// Values as 32-bit floats, unchanged.
#include <algorithm>
#include <cstring>

#include "codec/value_format.h"

namespace sparsewire {

std::size_t size_f32(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(float); }

void encode_f32(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
  if (received != nullptr && received != values.data()) std::copy(values.begin(), values.end(), received);
}

bool decode_f32(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  constexpr std::size_t kStretch = 4096;  // values that are copied and then checked while they are in the cache
  bool fine = true;
  for (std::size_t done = 0; done < values.size(); done += kStretch) {
    const std::span<float> part = values.subspan(done, std::min(kStretch, values.size() - done));
    std::memcpy(part.data(), section + done * sizeof(float), part.size_bytes());
    fine = all_finite(part) && fine;
  }
  return fine;
}

}  // namespace sparsewire
