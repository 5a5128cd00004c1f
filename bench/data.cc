// One loop computes a gradient, with integers up to the last line: so it vectorises well, and all compilers give the
// same bits.
#include "data.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/slices.h"
#include "wide.h"

namespace sparsewire::bench {
namespace {

constexpr std::size_t kLayer = 65'536;
constexpr double kOneStep = 8'388'608;  // 2^23: adding it to the bits of a float doubles it

// The sum of four bytes is nearly normal: mean 510, standard deviation 147.8.
constexpr double kDeviation = 147.8;
constexpr int kFixedPoint = 14;  // the drift is smaller than the noise and needs fractional bits
constexpr auto kLogNormal =
    static_cast<std::int32_t>(1.4427 * kOneStep / kDeviation);  // sigma 1 in the bits of a float

constexpr std::int32_t normal(std::uint32_t hash) noexcept {
  const std::uint32_t pairs = (hash & 0x00ff00ffU) + ((hash >> 8) & 0x00ff00ffU);
  return static_cast<std::int32_t>((pairs & 0xffffU) + (pairs >> 16)) - 510;
}

// The bits of the float that converts fixed-point noise into a gradient, before the entry's own scale. Adding to these
// bits multiplies the float, to within 6 %: close enough to a log-normal number, and far cheaper.
std::int32_t layer_scale(std::size_t layer) {
  const double log2_scale = 3 * (uniform(mix(static_cast<std::uint32_t>(layer) + 77)) - 0.5);
  return static_cast<std::int32_t>((127 + log2_scale - std::log2(kDeviation) - kFixedPoint) * kOneStep);
}

}  // namespace

// Has external linkage, because its version (SPARSEWIRE_WIDE) is chosen when the program starts.
SPARSEWIRE_WIDE void fill_layer(float* gradient, std::size_t count, std::uint32_t first, std::uint32_t step,
                                std::uint32_t key, std::int32_t scale_bits) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t entry = mix(first + static_cast<std::uint32_t>(i));
    // A triangle wave; each entry has its own phase and a period of 680 to 2,000 steps.
    const auto phase = static_cast<std::int32_t>(entry * 0x9e3779b1U + step * (0x200000U + (entry >> 10)));
    const std::int32_t drift = ((phase ^ (phase >> 31)) - (1 << 30)) >> 11;
    const std::int32_t noise = normal(mix(entry ^ key)) * (1 << kFixedPoint);
    const auto scale = std::bit_cast<float>(scale_bits + normal(entry) * kLogNormal);
    gradient[i] = static_cast<float>(drift + noise) * scale;
  }
}

void fill_gradient(std::uint64_t step, std::span<float> gradient, Pool* pool) {
  const auto short_step = static_cast<std::uint32_t>(step);
  const std::uint32_t key = mix(short_step + 12'345);
  for_each_slice(pool, gradient.size(), kLayer, [&](std::size_t begin, std::size_t end, int) {
    for (; begin < end; begin += kLayer) {
      fill_layer(gradient.data() + begin, std::min(kLayer, end - begin), static_cast<std::uint32_t>(begin), short_step,
                 key, layer_scale(begin / kLayer));
    }
  });
}

void fill_equal(float magnitude, std::span<float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = (mix(static_cast<std::uint32_t>(i)) & 1U) != 0 ? magnitude : -magnitude;
  }
}

void fill_sparse(std::uint64_t step, std::size_t count, std::span<float> numbers) {
  std::fill(numbers.begin(), numbers.end(), 0.0F);
  const std::uint32_t key = mix(static_cast<std::uint32_t>(step) + 54'321);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t hash = mix(static_cast<std::uint32_t>(i) ^ key);
    const auto index = static_cast<std::size_t>(uniform(hash) * static_cast<double>(numbers.size()));
    numbers[index] = static_cast<float>(uniform(mix(hash)) - 0.5);
  }
}

void fill_sorted(float largest, std::span<float> numbers) {
  const double step = static_cast<double>(largest) / static_cast<double>(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(step * static_cast<double>(i + 1));
}

void multiply(float factor, std::span<float> numbers) {
  for (float& number : numbers) number *= factor;
}

}  // namespace sparsewire::bench
