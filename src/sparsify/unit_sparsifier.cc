#include "sparsify/unit_sparsifier.h"

#include <fmt/core.h>

#include <algorithm>

#include "sparsewire/errors.h"
#include "sparsify/append.h"
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
  out.clear(context_.layout.dim());
  begin(unit_of_memory, out);
  if (memory.is_on_device()) return sift_on_device(gradient, memory, out);
  SiftNorms sifted;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    std::optional<std::size_t> bad;
    chosen_.clear();
    try {
      bad = unit.dense ? memory.take_all(unit, gradient, kernels::kLowestKey, chosen_)
                       : sift_unit(u, unit, gradient, memory, chosen_);
    } catch (...) {  // out of memory; this unit is already taken back
      take_back(u, gradient, memory, out);
      throw;
    }
    if (bad) {
      take_back(u, gradient, memory, out);
      throw_lowest_bad(*bad, *gradient, memory);
    }
    sifted.accumulated_norm2 += memory.accumulated_norm2();
    try {
      sifted.sent_norm2 += memory.norm2(unit, chosen_);
      make_room(out, chosen_.size());
    } catch (...) {
      memory.put_back(chosen_);
      memory.restore(unit, gradient);
      take_back(u, gradient, memory, out);
      throw;
    }
    append(out, chosen_, unit.dense);
  }
  end();
  ++step_;
  return sifted;
}

// Takes back the first `done` units, whose chosen entries are in `out`. The unit after them was taken back already; the
// others make the round trip, so that the memory does not depend on where the step failed.
void UnitSparsifier::take_back(std::size_t done, const kernels::ScaledGradient* gradient, ErrorMemory& memory,
                               SparseVector& out) {
  memory.put_back(out);
  for (std::size_t u = 0; u < done; ++u) memory.restore(units_[u], gradient);
  for (std::size_t u = done + 1; u < units_.size(); ++u) memory.make_round_trip(units_[u], gradient);
  out.clear(out.dim);
}

void UnitSparsifier::throw_lowest_bad(std::size_t bad, const kernels::ScaledGradient& gradient,
                                      const ErrorMemory& memory) const {
  // Units are in the order of their entries, except for the dense unit of small tensors, which comes last: look there
  // for a lower index with a bad sum. Such an entry has the number from before the step.
  const Unit& last = units_.back();
  for (std::size_t s = 0; last.dense && s < last.segments.size(); ++s) {
    const Segment& segment = last.segments[s];
    for (std::size_t i = segment.begin; i < segment.begin + segment.size && i < bad; ++i) {
      const float sum = gradient.decay * memory.at(i) + gradient.scale * kernels::number_at(gradient, i);
      if (kernels::key_of(sum) >= kernels::kInfinityKey) bad = i;
    }
  }
  throw_bad_gradient(name_, context_, step_, gradient, memory, bad);
}

void UnitSparsifier::undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) {
  memory.put_back(sent);
  if (memory.is_on_device()) {
    memory.restore(memory.whole(), gradient);  // the units are all entries
  } else {
    for (const Unit& unit : units_) memory.restore(unit, gradient);
  }
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
