// Keeps k entries drawn at random without replacement, whatever their values. Entries that are zero are sent too, so
// that the receiver can draw the same indices.
//
// With `shared=true` all workers draw the same indices.
#include "kernels/draw.h"
#include "sparsewire/support/philox.h"
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
        rank_(spec.flag("shared", false) ? 0 : static_cast<std::uint32_t>(context.rank)),
        drawers_(context.pool == nullptr ? 2 : static_cast<std::size_t>(context.pool->size()) + 1) {}

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

  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                       UnitPass& pass) override {
    const Stream stream(unit_seed(seed_, u), static_cast<std::uint32_t>(context().role), rank_, step());
    const std::size_t k = budget_.k(step(), unit.size);
    return pass.take_at(unit, gradient, {drawers_[pass.number()].positions(stream, k, unit.size, pass.pool()), k});
  }
  UnitChoice choice(const Unit& /*unit*/) const override { return {}; }  // nothing by its magnitude
  std::optional<double> choice_depends_on() const override { return 0; }
  bool sends_zeros() const override { return true; }
  void list_more(std::vector<std::uint32_t>& indices) override {
    for (std::size_t u = 0; u < units().size(); ++u) {
      const Unit& unit = units()[u];
      if (unit.dense) continue;
      const Stream stream(unit_seed(seed_, u), static_cast<std::uint32_t>(context().role), rank_, step());
      const std::size_t k = budget_.k(step(), unit.size);
      const std::uint32_t* const positions = drawers_[0].positions(stream, k, unit.size);
      std::size_t i = 0;
      for (const Segment& segment : unit.segments) {
        for (; i < k && positions[i] < segment.position + segment.size; ++i) {
          indices.push_back(static_cast<std::uint32_t>(segment.begin + (positions[i] - segment.position)));
        }
      }
    }
  }
  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  std::uint64_t seed_;
  std::uint32_t rank_;
  std::vector<kernels::Drawer> drawers_;  // for each pass of the memory: several threads may draw at the same time
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_randomk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RandomK>(spec, context);
}

}  // namespace sparsewire
