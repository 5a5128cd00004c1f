#include "codec/divisor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/stretches.h"

namespace sparsewire {
namespace {

class Search {
 public:
  explicit Search(std::span<const float> sample, double least, double most) noexcept
      : sample_(sample), least_(least), most_(most) {}

  void try_divisor(double divisor) noexcept {
    const kernels::GolombCode code(static_cast<std::uint32_t>(std::clamp(std::round(divisor), least_, most_)));
    const std::uint64_t cost = kernels::golomb_cost(code, sample_);
    if (cost >= best_cost_) return;
    best_cost_ = cost;
    best_ = code;
  }

  const kernels::GolombCode& best() const noexcept { return best_; }

 private:
  std::span<const float> sample_;
  double least_;
  double most_;
  kernels::GolombCode best_{1};
  std::uint64_t best_cost_ = ~std::uint64_t{0};
};

}  // namespace

kernels::GolombCode search_divisor(std::span<const std::uint32_t> gaps, double mean) noexcept {
  std::array<float, kernels::kMostDivisorSample> floats;
  std::transform(gaps.begin(), gaps.end(), floats.begin(), kernels::golomb_sample);
  const auto sample = std::span<const float>(floats).first(gaps.size());
  constexpr double kMost = kernels::GolombCode::kMostDivisor;
  // The best divisor for a random support with this mean gap, up to a rounding that does not matter for the search.
  const double random = std::clamp(0.6931471805599453 * (mean + 0.5), 1.0, kMost);
  const double least = std::max(1.0, std::ceil(random / 4));
  Search search(sample, least, std::min(std::ceil(random * 4), kMost));
  search.try_divisor(random);
  if (random < 8) {  // few candidates: try them all
    for (double divisor = 1; divisor <= 4 * random; ++divisor) search.try_divisor(divisor);
    return search.best();
  }
  for (double factor = 0.375; factor < 3; factor *= 1.125) search.try_divisor(random * factor);
  const double power = std::exp2(std::floor(std::log2(random)));
  for (const double below : {1.0 / 64, 1.0 / 16, 1.0 / 8}) {
    for (const double multiple : {1.0, 2.0, 4.0}) search.try_divisor(std::floor(power * multiple * (1 - below)));
  }
  const double coarse = search.best().divisor();
  for (const double factor : {0.93, 0.96, 0.98, 1.02, 1.04, 1.07}) search.try_divisor(coarse * factor);
  return search.best();
}

std::size_t most_bytes(const kernels::GolombCode& code, std::size_t count, std::uint64_t sum) noexcept {
  const std::uint64_t bits = count * static_cast<std::uint64_t>(code.bits() + 1) + sum / code.divisor();
  return bits / 8 + 16;
}

}  // namespace sparsewire
