// 16-bit values: f16 and bf16.
#include "sparsewire/support/half.h"

#include <algorithm>
#include <cstring>

#include "codec/value_format.h"

namespace sparsewire {
namespace {

constexpr std::size_t kStretch = 1024;  // values converted at a time, in a buffer on the stack

template <class Narrow, class Widen>
void encode_half(std::span<const float> values, std::byte* out, float* received, Narrow narrow, Widen widen) {
  std::uint16_t halves[kStretch];
  for (std::size_t done = 0; done < values.size(); done += kStretch) {
    const std::size_t count = std::min(kStretch, values.size() - done);
    for (std::size_t i = 0; i < count; ++i) halves[i] = narrow(values[done + i]);
    std::memcpy(out + done * sizeof(std::uint16_t), halves, count * sizeof(std::uint16_t));
    if (received == nullptr) continue;
    for (std::size_t i = 0; i < count; ++i) received[done + i] = widen(halves[i]);
  }
}

template <class Widen>
bool decode_half(const std::byte* section, std::span<float> values, Widen widen) {
  std::uint16_t halves[kStretch];
  bool fine = true;
  for (std::size_t done = 0; done < values.size(); done += kStretch) {
    const std::span<float> part = values.subspan(done, std::min(kStretch, values.size() - done));
    std::memcpy(halves, section + done * sizeof(std::uint16_t), part.size() * sizeof(std::uint16_t));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = widen(halves[i]);
    fine = all_finite(part) && fine;
  }
  return fine;
}

// Lambdas as template arguments are inlined; pointers to the functions would not be.
constexpr auto kToF16 = [](float value) { return to_f16(value); };
constexpr auto kToBF16 = [](float value) { return to_bf16(value); };
constexpr auto kFromF16 = [](std::uint16_t bits) { return from_f16(bits); };
constexpr auto kFromBF16 = [](std::uint16_t bits) { return from_bf16(bits); };

}  // namespace

std::size_t size_f16(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(std::uint16_t); }
std::size_t size_bf16(std::size_t count, std::size_t /*block*/) noexcept { return count * sizeof(std::uint16_t); }

void encode_f16(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  encode_half(values, out, received, kToF16, kFromF16);
}
void encode_bf16(std::span<const float> values, std::size_t /*block*/, std::byte* out, float* received) {
  encode_half(values, out, received, kToBF16, kFromBF16);
}

bool decode_f16(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  return decode_half(section, values, kFromF16);
}
bool decode_bf16(const std::byte* section, std::size_t /*block*/, std::span<float> values) {
  return decode_half(section, values, kFromBF16);
}

}  // namespace sparsewire
