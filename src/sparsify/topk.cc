// Keeps the k entries of largest magnitude: exact; among equals the lower index wins.
#include <algorithm>

#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/top_selector.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

class TopK final : public UnitSparsifier {
 public:
  TopK(Spec& spec, const SifterContext& context, std::uint64_t chunk)
      : UnitSparsifier(spec, context, context.scope, chunk),
        budget_(spec, model_size(), chunk != 0, chunk != 0 ? std::min<std::size_t>(chunk, model_size()) : model_size()),
        top_(units()) {}

 private:
  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                       UnitPass& pass) override {
    return top_.take(u, unit, gradient, budget_.k(step(), unit.size), magnitude_score(), pass);
  }
  UnitChoice choice(const Unit& unit) const override { return {.k = budget_.k(step(), unit.size)}; }
  std::optional<double> choice_depends_on() const override { return budget_.ratio(step()); }
  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  TopSelector top_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_topk(Spec& spec, const SifterContext& context) {
  const std::uint64_t chunk = spec.integer("chunk", 1, (std::uint64_t{1} << 32) - 1).value_or(0);
  return std::make_unique<TopK>(spec, context, chunk);
}

}  // namespace sparsewire
