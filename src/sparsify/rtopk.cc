// Keeps k random entries of the r entries of largest magnitude; every worker draws them again in every step.
//
// Barnes, Inan, Isik, Ozgur, rTop-k: a statistical estimation approach to distributed SGD, 2020. r = k is Top-k, r = d
// is Random-k. Of the r entries, the k with the smallest hash of (seed, role, rank, step, index) are sent.
#include <fmt/core.h>

#include <cmath>

#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

class RTopK final : public UnitSparsifier {
 public:
  RTopK(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, context.scope), budget_(spec, model_size(), false, model_size()) {
    const auto r = spec.number("r", {.min = 1});
    const auto r_ratio = spec.number("r_ratio", kRatioRange);
    if (r && r_ratio) spec.fail("takes r= or r_ratio=, not both");
    if (r_ratio && *r_ratio < budget_.ratio(~std::uint64_t{0})) {
      spec.fail(fmt::format("r_ratio={} is not in [ratio={}, 1]", *r_ratio, budget_.ratio(~std::uint64_t{0})));
    }
    r_ratio_ = r_ratio.value_or(0);
    r_ = r.value_or(2);
  }

 private:
  Rule rule(const Unit& unit) const override {
    const std::size_t k = budget_.k(step(), unit.size);
    return {Rule::Kind::best, r_of(k, unit.size), k};
  }
  std::optional<double> rule_depends_on() const override { return budget_.ratio(step()); }

  std::size_t r_of(std::size_t k, std::size_t n) const noexcept {
    if (r_ratio_ > 0) return std::max(k, count_of(r_ratio_, n));
    const double r = std::floor(r_ * static_cast<double>(k) + 0.5);
    return r >= static_cast<double>(n) ? n : static_cast<std::size_t>(r);
  }

  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  double r_ = 0;
  double r_ratio_ = 0;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_rtopk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RTopK>(spec, context);
}

}  // namespace sparsewire
