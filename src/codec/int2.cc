// Two bits: the sign, and which of two magnitudes that a block of values shares.
//
// What a sparsifier sends is large, so of four levels none should be wasted on zero. Two magnitudes fitted to the block
// lose a third of what -1, 0, 1 times the best scale lose, in the same bits (docs/decisions/0005).
#include <bit>
#include <cmath>

#include "codec/blocks.h"
#include "codec/half.h"

namespace sparsewire {
namespace {

struct Levels {
  float low = 0;
  float high = 0;

  // Above it, the higher one is nearer. A tie goes to the lower.
  float middle() const noexcept { return low * 0.5F + high * 0.5F; }
};

// The values of a block, cut in two at a magnitude.
struct Halves {
  double low_sum = 0;
  double high_sum = 0;
  double low_count = 0;
  double high_count = 0;

  // All magnitudes count `factor` times.
  Halves(std::span<const float> values, float factor, float cut) noexcept {
    std::array<float, kSumLanes> high{};
    std::array<float, kSumLanes> all{};
    std::array<float, kSumLanes> count{};
    const auto add = [&](std::size_t lane, float value) {
      const float magnitude = std::abs(value) * factor;
      all[lane] += magnitude;
      high[lane] += magnitude > cut ? magnitude : 0.0F;
      count[lane] += magnitude > cut ? 1.0F : 0.0F;
    };
    std::size_t i = 0;
    for (; i + kSumLanes <= values.size(); i += kSumLanes) {
      for (std::size_t lane = 0; lane < kSumLanes; ++lane) add(lane, values[i + lane]);
    }
    for (; i < values.size(); ++i) add(i % kSumLanes, values[i]);
    double sum = 0;
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      sum += static_cast<double>(all[lane]);
      high_sum += static_cast<double>(high[lane]);
      high_count += static_cast<double>(count[lane]);
    }
    low_sum = sum - high_sum;
    low_count = static_cast<double>(values.size()) - high_count;
  }

  // The more, the less is lost: ||values||^2 minus this.
  double explained() const noexcept {
    return (low_count == 0 ? 0 : low_sum * low_sum / low_count) +
           (high_count == 0 ? 0 : high_sum * high_sum / high_count);
  }

  Levels means() const noexcept {
    Levels levels;
    levels.low = low_count == 0 ? 0 : static_cast<float>(low_sum / low_count);
    levels.high = high_count == 0 ? levels.low : static_cast<float>(high_sum / high_count);
    return levels;
  }
};

// Two means in one dimension: the best of some cuts, then twice the middle between the means.
Levels choose_levels(std::span<const float> values) noexcept {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float factor = largest > 0x1p100F ? 0x1p-40F : 1.0F;  // so that no sum overflows
  largest *= factor;
  Halves best(values, factor, largest);  // all in the lower half
  for (int i = 1; i < 8; ++i) {
    const Halves halves(values, factor, largest * 0.125F * static_cast<float>(i));
    if (halves.explained() > best.explained()) best = halves;
  }
  for (int i = 0; i < 2; ++i) {
    const Halves halves(values, factor, best.means().middle());
    if (halves.explained() > best.explained()) best = halves;
  }
  const Levels levels = best.means();
  return {levels.low / factor, levels.high / factor};
}

constexpr std::uint32_t kHigh = 1;
constexpr std::uint32_t kMinus = 2;

float value_of(std::uint32_t code, const Levels& levels) noexcept {
  const float magnitude = (code & kHigh) != 0 ? levels.high : levels.low;
  return (code & kMinus) != 0 ? -magnitude : magnitude;
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
    const float middle = levels.middle();
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::uint32_t code = (std::abs(part[i]) > middle ? kHigh : 0U) | (std::signbit(part[i]) ? kMinus : 0U);
      codes.put(code);
      if (received != nullptr) received[begin + i] = value_of(code, levels);
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
    fine = fine && low <= high && high < kInfinity;  // a sign bit makes it larger
    const Levels levels{from_bf16(low), from_bf16(high)};
    for (std::size_t i = begin; i < std::min(begin + block, values.size()); ++i) {
      values[i] = value_of(code_at<2>(codes, i), levels);
    }
  }
  return fine;
}

}  // namespace sparsewire
