#include "data/hold_back.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/random.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {

std::vector<std::uint32_t> shuffled(std::uint32_t n, Draws& draws) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t left = n; left > 1; --left) std::swap(order[left - 1], order[draws.below(left)]);
  return order;
}

HeldBack hold_back(std::size_t samples, double share, std::uint64_t seed) {
  HeldBack parts;
  std::vector<std::uint8_t> is_held(samples);
  if (share > 0) {
    const auto count = static_cast<std::size_t>(std::max(1.0, std::floor(share * static_cast<double>(samples) + 0.5)));
    if (count >= samples) {
      throw UsageError(fmt::format("--validation {} of {} samples leaves none for training", share, samples));
    }
    Draws draws(seed, Use::validation);
    const std::vector<std::uint32_t> order = shuffled(static_cast<std::uint32_t>(samples), draws);
    for (std::size_t i = 0; i < count; ++i) is_held[order[i]] = 1;
  }
  for (std::uint32_t sample = 0; sample < samples; ++sample) {
    (is_held[sample] != 0 ? parts.validation : parts.training).push_back(sample);
  }
  return parts;
}

}  // namespace sparsewire::train
