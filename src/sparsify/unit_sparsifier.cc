#include "sparsify/unit_sparsifier.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"

namespace sparsewire {
namespace {

// ||chosen||^2 with the same lanes and blocks as the norms of the pass, so that the bits are the same if every non-zero
// entry was chosen.
double norm2(const Unit& unit, const Candidates& chosen) {
  double sum = 0;
  std::size_t c = 0;
  for (const Block& block : unit.blocks) {
    if (c == chosen.size()) break;
    std::array<double, kernels::kLanes> lanes{};
    for (; c < chosen.size() && chosen.indices()[c] < block.begin + block.size; ++c) {
      const double wide = chosen.values()[c];
      lanes[(chosen.indices()[c] - block.begin) % kernels::kLanes] += wide * wide;
    }
    sum += kernels::sum_lanes(lanes.data());
  }
  return sum;
}

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

void UnitSparsifier::check_size(const Gradient& gradient, std::span<const float> memory) const {
  const std::uint64_t dim = context_.layout.dim();
  if (gradient.size != dim || memory.size() != dim) {
    throw UsageError(fmt::format("[{}] a gradient of {} and a memory of {} entries do not fit a layout of {}", name_,
                                 gradient.size, memory.size(), dim));
  }
}

SiftNorms UnitSparsifier::sift(Gradient gradient, std::span<float> memory, SparseVector& out) {
  check_size(gradient, memory);
  out.clear(context_.layout.dim());
  begin(gradient, out);
  SiftNorms sifted;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    std::optional<std::size_t> bad;
    chosen_.clear();
    try {
      bad = unit.dense ? pass().take_all(unit, gradient, memory.data(), kernels::kLowestKey, chosen_)
                       : sift_unit(u, unit, gradient, memory.data(), chosen_);
    } catch (...) {  // out of memory; this unit is already restored
      take_back(u, gradient, memory, out);
      throw;
    }
    if (bad) {
      take_back(u, gradient, memory, out);
      throw_lowest_bad(*bad, gradient, memory);
    }
    sifted.accumulated_norm2 += pass().accumulated_norm2();
    sifted.sent_norm2 += norm2(unit, chosen_);
    try {
      make_room(out, chosen_.size());
    } catch (...) {
      chosen_.put_back(memory.data());
      take_back(u + 1, gradient, memory, out);
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

// Takes back the first `units` units, whose chosen entries are in `out`.
void UnitSparsifier::take_back(std::size_t units, const Gradient& gradient, std::span<float> memory,
                               SparseVector& out) {
  for (std::size_t i = 0; i < out.size(); ++i) memory[out.indices[i]] = out.values[i];
  for (std::size_t u = 0; u < units; ++u) pass().subtract(units_[u], gradient, memory.data());
  out.clear(out.dim);
}

void UnitSparsifier::throw_lowest_bad(std::size_t bad, const Gradient& gradient, std::span<const float> memory) const {
  // Units are in the order of their entries, except for the dense unit of small tensors, which comes last: look there
  // for a lower index with a bad sum.
  const Unit& last = units_.back();
  for (std::size_t b = 0; last.dense && b < last.blocks.size(); ++b) {
    for (std::size_t i = last.blocks[b].begin; i < last.blocks[b].begin + last.blocks[b].size && i < bad; ++i) {
      const float sum = gradient.decay * memory[i] + gradient.scale * kernels::number_at(gradient, i);
      if (kernels::key_of(sum) >= kernels::kInfinityKey) bad = i;
    }
  }
  throw_bad_gradient(name_, context_, step_, gradient, memory, bad);
}

void UnitSparsifier::undo(Gradient gradient, std::span<float> memory, const SparseVector& sent) {
  check_size(gradient, memory);
  if (step_ == context_.first_step) throw UsageError(fmt::format("[{}] there is no step to undo", name_));
  for (std::size_t i = 0; i < sent.size(); ++i) memory[sent.index(i)] = sent.values[i];
  for (const Unit& unit : units_) pass().subtract(unit, gradient, memory.data());
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
