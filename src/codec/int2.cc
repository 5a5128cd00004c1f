// Two bits for each value: the sign, and one of two magnitudes that are shared by a block of values.
//
// The values that a sparsifier sends are large, so none of the four levels should be spent on zero. Two magnitudes
// fitted to the block lose a third of what -1, 0, 1 times the best scale lose, with the same bits
// (docs/decisions/0005).
#include <bit>
#include <cmath>

#include "codec/blocks.h"
#include "kernels/levels.h"
#include "sparsewire/support/half.h"

namespace sparsewire {
namespace {

struct Levels {
  float low = 0;
  float high = 0;

  // Magnitudes above it are rounded to `high`, others to `low`; so a tie is rounded to `low`.
  float middle() const noexcept { return low * 0.5F + high * 0.5F; }
};

// The squared rounding error of the block is ||values||^2 minus this: the larger, the better.
double explained(const kernels::Halves& halves) noexcept {
  const double low = halves.low_count == 0 ? 0 : halves.low_sum * halves.low_sum / halves.low_count;
  return halves.high_count == 0 ? low : low + halves.high_sum * halves.high_sum / halves.high_count;
}

Levels means(const kernels::Halves& halves) noexcept {
  Levels levels;
  levels.low = halves.low_count == 0 ? 0 : static_cast<float>(halves.low_sum / halves.low_count);
  levels.high = halves.high_count == 0 ? levels.low : static_cast<float>(halves.high_sum / halves.high_count);
  levels.low = std::min(levels.low, levels.high);  // the sums are rounded, and the magnitudes may be almost equal
  return levels;
}

// k-means in one dimension with k = 2: the best of some cuts between the two groups, then two refinements that put the
// cut in the middle between the means.
Levels choose_levels(std::span<const float> values) noexcept {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float factor = largest > 0x1p100F ? 0x1p-40F : 1.0F;  // so that no sum overflows
  largest *= factor;
  const auto cut_at = [&](float cut) { return kernels::halves_of(values.data(), values.size(), factor, cut); };
  kernels::Halves best = cut_at(largest);  // all in the lower half
  const auto try_cut = [&](float cut) {
    const kernels::Halves halves = cut_at(cut);
    if (explained(halves) > explained(best)) best = halves;
  };
  for (int i = 1; i < 8; ++i) try_cut(largest * 0.125F * static_cast<float>(i));
  for (int i = 0; i < 2; ++i) try_cut(means(best).middle());
  const Levels levels = means(best);
  return {levels.low / factor, levels.high / factor};
}

constexpr std::uint32_t kHigh = 1;
constexpr std::uint32_t kMinus = 2;

// The values of the four codes.
std::array<float, 4> values_of(const Levels& levels) noexcept {
  return {levels.low, levels.high, -levels.low, -levels.high};
}

}  // namespace

std::size_t size_int2(std::size_t count, std::size_t block) noexcept { return size_of_blocks(count, block, 2); }

void encode_int2(std::span<const float> values, std::size_t block, std::byte* out, float* received) {
  std::byte* scales = out;
  write_field(scales, static_cast<std::uint32_t>(block));
  CodeWriter<2> codes(scales + blocks_in(values.size(), block) * kScaleSize);
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    const Levels exact = choose_levels(part);
    const std::uint16_t low = to_bf16(exact.low);
    const std::uint16_t high = to_bf16(exact.high);
    write_field(scales, low);
    write_field(scales, high);
    const Levels levels{from_bf16(low), from_bf16(high)};
    const std::array<float, 4> code_values = values_of(levels);
    const float middle = levels.middle();
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::uint32_t code = (std::abs(part[i]) > middle ? kHigh : 0U) | (std::signbit(part[i]) ? kMinus : 0U);
      codes.put(code);
      if (received != nullptr) received[begin + i] = code_values[code];
    }
  }
  codes.finish();
}

bool decode_int2(const std::byte* section, std::size_t block, std::span<float> values) {
  constexpr std::uint16_t kInfinity = 0x7F80;
  const std::byte* scales = section + sizeof(std::uint32_t);
  const std::byte* const codes = scales + blocks_in(values.size(), block) * kScaleSize;
  bool fine = ends_in_zeros<2>(codes, values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto low = next_field<std::uint16_t>(scales);
    const auto high = next_field<std::uint16_t>(scales);
    fine = fine && low <= high && high < kInfinity;  // a sign bit makes it larger than kInfinity
    const std::array<float, 4> code_values = values_of({from_bf16(low), from_bf16(high)});
    for (std::size_t i = begin; i < std::min(begin + block, values.size()); ++i) {
      values[i] = code_values[code_at<2>(codes, i)];
    }
  }
  return fine;
}

}  // namespace sparsewire
