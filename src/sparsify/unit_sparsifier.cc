#include "sparsify/unit_sparsifier.h"

#include <fmt/core.h>

#include <algorithm>

#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"

namespace sparsewire {
namespace {

void make_room(SparseVector& out, std::size_t more) {
  const std::size_t size = out.size() + more;
  if (size <= out.values.capacity() && size <= out.indices.capacity()) return;
  const std::size_t room =
      std::max(size, out.values.capacity() * 3 / 2);  // grows by half, so that the steady state allocates nothing
  out.indices.reserve(room);
  out.values.reserve(room);
}

void append(SparseVector& out, const Candidates& chosen) {
  out.indices.insert(out.indices.end(), chosen.indices(), chosen.indices() + chosen.size());
  out.values.insert(out.values.end(), chosen.values(), chosen.values() + chosen.size());
}

// Sorts the entries of the dense unit, `tail`, which were appended after the first `head` entries, into their places.
// O(entries) and in place: repeatedly moves the entry with the larger index of the two runs to the end.
void merge_tail(SparseVector& out, std::size_t head, const Candidates& tail) {
  std::size_t t = tail.size();
  for (std::size_t to = head + t; t > 0; --to) {
    const bool from_tail = head == 0 || out.indices[head - 1] < tail.indices()[t - 1];
    out.indices[to - 1] = from_tail ? tail.indices()[t - 1] : out.indices[head - 1];
    out.values[to - 1] = from_tail ? tail.values()[t - 1] : out.values[head - 1];
    from_tail ? --t : --head;
  }
}

}  // namespace

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
    const std::size_t head = out.size();
    append(out, chosen_);
    if (unit.dense) merge_tail(out, head, chosen_);
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
  throw_bad_gradient(name_, context_, step_, gradient, memory.at(bad), bad);
}

void UnitSparsifier::undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) {
  memory.put_back(sent);
  for (const Unit& unit : units_) memory.restore(unit, gradient);
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
