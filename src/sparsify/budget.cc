#include "sparsify/budget.h"

#include <algorithm>
#include <cmath>

#include "sparsewire/support/portable_math.h"

namespace sparsewire {

std::size_t count_of(double ratio, std::size_t n) noexcept {
  const double rounded = std::floor(ratio * static_cast<double>(n) + 0.5);
  return std::min(n, static_cast<std::size_t>(std::max(1.0, rounded)));
}

Budget::Budget(Spec& spec, std::size_t model_size, bool per_unit, std::size_t limit)
    : model_size_(model_size), per_unit_(per_unit) {
  const auto ratio = spec.number("ratio", kRatioRange);
  const auto k = spec.integer("k", 1, std::max<std::size_t>(1, limit));  // for an empty model k does not matter
  if (ratio.has_value() == k.has_value()) {
    spec.fail_on_finish(ratio ? "takes ratio= or k=, not both" : "needs ratio= in (0, 1] or k= at least 1");
  }
  ratio_ = ratio.value_or(0);
  k_ = k.value_or(0);
  const auto from = spec.number("warmup_from", kRatioRange);
  const auto steps = spec.integer("warmup_steps", 1, std::uint64_t{1} << 53);
  if (from.has_value() != steps.has_value()) spec.fail("needs both warmup_from= and warmup_steps=, or neither");
  if (from && !ratio) spec.fail("warmup_from= needs ratio=, not k=");
  warmup_from_ = from.value_or(0);
  warmup_steps_ = steps.value_or(0);
}

double Budget::ratio(std::uint64_t step) const noexcept {
  if (step >= warmup_steps_) return ratio_;
  return warmup_from_ *
         portable_pow(ratio_ / warmup_from_, static_cast<double>(step) / static_cast<double>(warmup_steps_));
}

std::size_t Budget::k(std::uint64_t step, std::size_t unit_size) const noexcept {
  if (k_ == 0) return count_of(ratio(step), unit_size);
  if (per_unit_ || unit_size == model_size_) return std::min<std::size_t>(k_, unit_size);
  const double share = static_cast<double>(k_) * static_cast<double>(unit_size) / static_cast<double>(model_size_);
  return std::min(unit_size, static_cast<std::size_t>(std::max(1.0, std::floor(share + 0.5))));
}

}  // namespace sparsewire
