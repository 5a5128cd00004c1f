// Keeps k entries drawn at random without replacement, whatever their values, zeros included: the draw is the message.
//
// With `shared=true` all workers draw the same indices.
#include "core/philox.h"
#include "sparsify/budget.h"
#include "sparsify/draw.h"
#include "sparsify/registry.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

class RandomK final : public UnitSparsifier {
 public:
  RandomK(Spec& spec, const Place& place)
      : UnitSparsifier(spec, place, place.scope),
        budget_(spec, sparse_size(), false, sparse_size()),
        harvest_(place.pool),
        seed_(spec.integer("seed", 0, ~std::uint64_t{0}).value_or(place.seed)),
        rank_(spec.flag("shared", false) ? 0 : static_cast<std::uint32_t>(place.rank)) {}

 private:
  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const Gradient& gradient, float* memory,
                                       Candidates& chosen) override {
    constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15;  // so that units do not draw alike
    const Stream stream(seed_ + u * kApart, static_cast<std::uint32_t>(place().role), rank_, step());
    const std::size_t k = budget_.k(step(), unit.size);
    return harvest_.take_at(unit, gradient, memory, {draw_.positions(stream, k, unit.size), k}, chosen);
  }
  Harvest& harvest() noexcept override { return harvest_; }

  Budget budget_;
  Harvest harvest_;
  Draw draw_;
  std::uint64_t seed_;
  std::uint32_t rank_;
};

}  // namespace

std::unique_ptr<Sparsifier> make_randomk(Spec& spec, const Place& place) {
  return std::make_unique<RandomK>(spec, place);
}

}  // namespace sparsewire
