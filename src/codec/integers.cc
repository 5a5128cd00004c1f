// int8 and int4: each value is an integer multiple of a scale that is shared by a block of values.
#include <bit>
#include <cmath>
#include <limits>

#include "codec/blocks.h"
#include "kernels/levels.h"

namespace sparsewire {
namespace {

// value / scale, rounded to the nearest integer in [-most, most], ties to even. Computed in double: rounding the
// quotient to f32 first could turn it into a tie.
float code_of(float value, float scale, float most) noexcept {
  constexpr double kWhole = 6755399441055744.0;  // 1.5 * 2^52: sums with it are rounded to integers
  const double quotient = static_cast<double>(value) / static_cast<double>(scale);
  return std::clamp(static_cast<float>((quotient + kWhole) - kWhole), -most, most);
}

// The scale whose largest code is the largest value or, if several are tried, a smaller scale: with few codes a smaller
// scale often has the smaller total error, although it clips the largest values.
template <int kMost, int kTries>
float choose_scale(std::span<const float> values) noexcept {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  constexpr auto kTop = static_cast<float>(kMost);
  constexpr float kLargestScale =
      std::numeric_limits<float>::max() / kTop * 0.9999999F;  // so that kTop times the scale is finite
  const float reaching = std::min(largest / kTop, kLargestScale);
  if (reaching < std::numeric_limits<float>::min()) return reaching;  // subnormal: rounding_loss() needs a normal scale
  float best = reaching;
  if constexpr (kTries > 1) {
    double least = kernels::rounding_loss(values.data(), values.size(), reaching, kTop);
    for (int i = 1; i < kTries; ++i) {
      const float scale = reaching * (1 - 0.1F * static_cast<float>(i));
      const double lost = kernels::rounding_loss(values.data(), values.size(), scale, kTop);
      if (lost < least) {
        least = lost;
        best = scale;
      }
    }
  }
  return best;
}

template <int kBits, int kTries>
void encode_integers(std::span<const float> values, std::size_t block, std::byte* out, float* received) {
  constexpr int kMost = (1 << (kBits - 1)) - 1;
  std::byte* scales = out;
  write_field(scales, static_cast<std::uint32_t>(block));
  CodeWriter<kBits> codes(scales + blocks_in(values.size(), block) * kScaleSize);
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    const float scale = choose_scale<kMost, kTries>(part);
    write_field(scales, scale);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const float code = scale == 0 ? 0.0F : code_of(part[i], scale, kMost);
      codes.put(static_cast<std::uint32_t>(static_cast<std::int32_t>(code)));
      if (received != nullptr) received[begin + i] = (code + 0.0F) * scale;  // + 0 turns -0 into 0
    }
  }
  codes.finish();
}

template <int kBits>
bool decode_integers(const std::byte* section, std::size_t block, std::span<float> values) {
  constexpr std::uint32_t kUnused = 1U << (kBits - 1);  // for 4 bits: -8, of -8 to 7
  constexpr auto kTop = static_cast<float>(kUnused - 1);
  const std::byte* scales = section + sizeof(std::uint32_t);
  const std::byte* const codes = scales + blocks_in(values.size(), block) * kScaleSize;
  bool fine = ends_in_zeros<kBits>(codes, values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto scale = next_field<float>(scales);
    fine = fine && is_scale(scale, kTop);
    for (std::size_t i = begin; i < std::min(begin + block, values.size()); ++i) {
      const std::uint32_t code = code_at<kBits>(codes, i);
      fine = fine && code != kUnused;
      const auto whole = static_cast<std::int32_t>(code ^ kUnused) - static_cast<std::int32_t>(kUnused);
      values[i] = static_cast<float>(whole) * scale;
    }
  }
  return fine;
}

}  // namespace

std::size_t size_int8(std::size_t count, std::size_t block) noexcept { return size_of_blocks(count, block, 8); }
std::size_t size_int4(std::size_t count, std::size_t block) noexcept { return size_of_blocks(count, block, 4); }

void encode_int8(std::span<const float> values, std::size_t block, std::byte* out, float* received) {
  encode_integers<8, 1>(values, block, out, received);
}
void encode_int4(std::span<const float> values, std::size_t block, std::byte* out, float* received) {
  encode_integers<4, 6>(values, block, out, received);
}

bool decode_int8(const std::byte* section, std::size_t block, std::span<float> values) {
  return decode_integers<8>(section, block, values);
}
bool decode_int4(const std::byte* section, std::size_t block, std::span<float> values) {
  return decode_integers<4>(section, block, values);
}

}  // namespace sparsewire
