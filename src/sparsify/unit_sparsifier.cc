#include "sparsify/unit_sparsifier.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"

namespace sparsewire {

UnitSparsifier::UnitSparsifier(Spec& spec, const SifterContext& context, Scope scope, std::uint64_t chunk)
    : name_(spec.name()), context_(context), step_(context.first_step) {
  if (context_.weight == 0) context_.weight = 1.0 / context_.ranks;
  Cut cut{.scope = scope, .chunk = chunk};
  cut.dense_below = spec.integer("dense_below", 0, ~std::uint64_t{0}).value_or(0);
  units_ = make_units(context_.layout, cut);
  for (const Unit& unit : units_) sparse_size_ += unit.dense ? 0 : unit.size;
}

SiftNorms UnitSparsifier::sift(const kernels::ScaledGradient* gradient, float unit_of_memory, ErrorMemory& memory,
                               SparseVector& out) {
  out.dim = context_.layout.dim();
  out.draw.units.clear();
  begin(unit_of_memory, out);
  if (memory.is_on_device()) {
    out.indices.clear();
    out.values.clear();
    return sift_on_device(gradient, memory, out);
  }
  SiftNorms sifted;
  std::optional<std::size_t> bad;
  try {
    bad = runner_.sift(
        units_, gradient, memory,
        [&](std::size_t u, UnitPass& pass) { return sift_unit(u, units_[u], gradient, pass); }, out, sifted);
  } catch (...) {
    out.clear(out.dim);
    throw;
  }
  if (bad) {
    out.clear(out.dim);
    throw_bad_gradient(name_, context_, step_, *gradient, memory, *bad);
  }
  end();
  ++step_;
  return sifted;
}

void UnitSparsifier::undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) {
  memory.put_back(sent);
  memory.restore(gradient);  // the units are all entries
  --step_;
  rewind();
}

double UnitSparsifier::expected_entries() const {
  double sum = 0;
  for (const Unit& unit : units_) sum += unit.dense ? static_cast<double>(unit.size) : expected_in(unit);
  return sum;
}

void UnitSparsifier::serialize(State& state) {
  state.value("step", step_);
  serialize_more(state);
}

}  // namespace sparsewire
