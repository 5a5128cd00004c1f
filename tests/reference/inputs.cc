#include "reference/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace sparsewire::reference {
namespace {

// A different stream for each (seed, step).
Random random_of(std::uint64_t seed, int step) {
  return Random(seed * 1'000'003 + static_cast<std::uint64_t>(step) * 7919 + 1);
}

template <class Make>
Numbers fill(std::size_t n, Make&& make) {
  Numbers numbers(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(make(i));
  return numbers;
}

Numbers normal(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) { return random.normal(); });
}

Numbers heavy_tailed(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) {
    const double size = std::exp(3 * random.normal());
    return random.uniform() < 0.5 ? size : -size;
  });
}

Numbers few_values(std::size_t n, int step, std::uint64_t seed) {
  constexpr float kValues[] = {-2, -1, -0.5F, 0, 0.5F, 1, 2};
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) { return kValues[random.below(std::size(kValues))]; });
}

Numbers signed_ties(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) { return random.uniform() < 0.5 ? 1.0 : -1.0; });
}

Numbers denormals(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t i) {
    const double units = static_cast<double>(random.below(i % 3 == 0 ? 5 : (1U << 24U)));
    return (random.uniform() < 0.5 ? units : -units) * 0x1p-149;
  });
}

Numbers all_negative(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) { return -0.01 - random.uniform(); });
}

Numbers zeros(std::size_t n, int step, std::uint64_t /*seed*/) {
  return fill(n, [&](std::size_t i) { return (i + static_cast<std::size_t>(step)) % 3 == 0 ? -0.0 : 0.0; });
}

Numbers few_non_zeros(std::size_t n, int step, std::uint64_t seed) {
  Numbers numbers(n, 0.0F);
  Random random = random_of(seed, step);
  for (std::size_t i = 0; n > 0 && i < 3; ++i) numbers[random.below(n)] = static_cast<float>(random.normal());
  return numbers;
}

// Each entry keeps its magnitude and alternates its sign, so that the memory never overflows.
Numbers near_the_largest(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, 0);
  return fill(n, [&](std::size_t i) {
    const double size = (i % 4 == 0 ? 1e-30 : 0.45) * double{std::numeric_limits<float>::max()} * random.uniform();
    return (random.uniform() < 0.5) == (step % 2 == 0) ? size : -size;
  });
}

Numbers ascending(std::size_t n, int /*step*/, std::uint64_t /*seed*/) {
  return fill(n, [&](std::size_t i) { return 1e-3 * static_cast<double>(i); });
}

Numbers descending(std::size_t n, int step, std::uint64_t seed) {
  Numbers numbers = ascending(n, step, seed);
  std::reverse(numbers.begin(), numbers.end());
  return numbers;
}

Numbers all_equal(std::size_t n, int /*step*/, std::uint64_t /*seed*/) { return Numbers(n, 0.75F); }

Numbers spread_scales(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t) { return random.normal() * std::exp2(200 * random.uniform() - 100); });
}

// Odd steps cancel the even ones.
Numbers sign_flips(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, 0);
  return fill(n, [&](std::size_t) { return random.normal() * (step % 2 == 0 ? 1 : -1); });
}

}  // namespace

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

const std::vector<Input>& catalogue() {
  static const std::vector<Input> all = {{"normal", normal},
                                         {"heavy_tailed", heavy_tailed},
                                         {"few_values", few_values},
                                         {"signed_ties", signed_ties},
                                         {"denormals", denormals},
                                         {"all_negative", all_negative},
                                         {"zeros", zeros},
                                         {"few_non_zeros", few_non_zeros},
                                         {"near_the_largest", near_the_largest},
                                         {"ascending", ascending},
                                         {"descending", descending},
                                         {"all_equal", all_equal},
                                         {"spread_scales", spread_scales},
                                         {"sign_flips", sign_flips},
                                         {"drifting", drifting},
                                         {"exact", exact_numbers}};
  return all;
}

const Input& input(const std::string& name) {
  for (const Input& one : catalogue()) {
    if (one.name == name) return one;
  }
  throw std::invalid_argument("there is no input " + name);
}

std::vector<Numbers> sequence(const Input& input, std::size_t n, int steps, std::uint64_t seed) {
  std::vector<Numbers> gradients;
  for (int step = 0; step < steps; ++step) gradients.push_back(input.make(n, step, seed));
  return gradients;
}

std::vector<std::size_t> small_lengths() { return {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025}; }
std::vector<std::size_t> large_lengths() { return {4099, 8191, 8193, 65535, 65536, 65537}; }

Numbers exact_numbers(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t i) {
    const double unit = i * 2654435761U % 10 == 3 ? 1.0 : 1.0 / 64;
    return unit * (static_cast<double>(random.below(1025)) - 512);
  });
}

Numbers drifting(std::size_t n, int step, std::uint64_t seed) {
  Random random = random_of(seed, step);
  return fill(n, [&](std::size_t i) {
    const double phase = static_cast<double>(i * 2654435761U % 1000) / 1000;
    const double scale = std::exp(4 * phase - 2);
    return scale * (0.2 * std::sin(6.28 * phase + 0.01 * step) + random.normal());
  });
}

std::vector<std::uint16_t> every_finite_half(int exponent_bits, std::size_t extra, int step, std::uint64_t seed) {
  const unsigned infinity = ((1U << exponent_bits) - 1) << (15 - exponent_bits);
  std::vector<std::uint16_t> patterns;
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    if ((bits & infinity) != infinity) patterns.push_back(static_cast<std::uint16_t>(bits));
  }
  Random random = random_of(seed, 0);
  for (std::size_t i = patterns.size(); i > 1; --i) std::swap(patterns[i - 1], patterns[random.below(i)]);
  for (std::uint16_t& bits : patterns) bits = static_cast<std::uint16_t>(bits ^ (step % 2 == 0 ? 0U : 0x8000U));
  patterns.resize(patterns.size() + extra);
  return patterns;
}

}  // namespace sparsewire::reference
