// Keeps the k entries of largest magnitude: exact; among equals the lower index wins.
#include <algorithm>

#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

class TopK final : public UnitSparsifier {
 public:
  TopK(Spec& spec, const SifterContext& context, std::uint64_t chunk)
      : UnitSparsifier(spec, context, context.scope, chunk),
        budget_(spec, model_size(), chunk != 0,
                chunk != 0 ? std::min<std::size_t>(chunk, model_size()) : model_size()) {}

 private:
  Rule rule(const Unit& unit) const override { return {Rule::Kind::best, budget_.k(step(), unit.size)}; }
  std::optional<double> rule_depends_on() const override { return budget_.ratio(step()); }
  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_topk(Spec& spec, const SifterContext& context) {
  const std::uint64_t chunk = spec.integer("chunk", 1, (std::uint64_t{1} << 32) - 1).value_or(0);
  return std::make_unique<TopK>(spec, context, chunk);
}

}  // namespace sparsewire
