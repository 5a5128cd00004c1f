// Keeps k entries drawn at random without replacement, whatever their values. Entries that are zero are sent too, so
// that the receiver can draw the same indices.
//
// With `shared=true` all workers draw the same indices.
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

class RandomK final : public UnitSparsifier {
 public:
  RandomK(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, context.scope),
        budget_(spec, model_size(), false, model_size()),
        seed_(spec.integer("seed", 0, ~std::uint64_t{0}).value_or(context.seed)),
        rank_(spec.flag("shared", false) ? 0 : static_cast<std::uint32_t>(context.rank)) {}

 private:
  // Records how the indices are drawn, so that the codec can send the seed instead of them. Not possible if small
  // tensors are sent densely: their entries are not drawn.
  void begin(float /*scale*/, SparseVector& out) override {
    if (sparse_size() < context().layout.dim()) return;
    out.draw.seed = seed_;
    out.draw.step = step();
    out.draw.rank = rank_;
    out.draw.role = static_cast<std::uint8_t>(context().role);
    for (const Unit& unit : units()) {
      const std::size_t k = budget_.k(step(), unit.size);
      out.draw.units.push_back({static_cast<std::uint32_t>(unit.size), static_cast<std::uint32_t>(k)});
    }
  }

  Rule rule(const Unit& unit) const override { return {Rule::Kind::drawn, budget_.k(step(), unit.size)}; }
  std::optional<double> rule_depends_on() const override { return budget_.ratio(step()); }
  DrawsFrom draws() const override { return {seed_, static_cast<std::uint32_t>(context().role), rank_, step()}; }
  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  std::uint64_t seed_;
  std::uint32_t rank_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_randomk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RandomK>(spec, context);
}

}  // namespace sparsewire
