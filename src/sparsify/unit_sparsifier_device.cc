// A sift whose memory lies on a device: one pass there takes entries out of all units; what remains to be decided about
// them is decided here.
#include <algorithm>

#include "sparsify/append.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {

// COST: O(1) if choice() depends on what it depended on before.
void UnitSparsifier::make_choices() {
  const std::optional<double> depends_on = choice_depends_on();
  if (depends_on && depends_on == choices_depended_on_) return;
  choices_depended_on_.reset();  // unless all are made
  choices_.make(units_.size(), [&](std::size_t u) {
    return units_[u].dense ? UnitChoice{.threshold = kernels::kLowestKey} : choice(units_[u]);
  });
  choices_depended_on_ = depends_on;
}

SiftNorms UnitSparsifier::sift_on_device(const kernels::ScaledGradient* gradient, ErrorMemory& memory,
                                         SparseVector& out) {
  make_choices();
  const auto second = second_choice();
  if (const auto bad =
          memory.take_from_units(units_, choices_, factor(), second ? &*second : nullptr, gradient, taken_)) {
    throw_bad_gradient(name_, context_, step_, *gradient, memory, *bad);
  }
  bool has_more = false;
  try {
    more_indices_.clear();
    if (!taken_.chosen_twice) list_more(more_indices_);
    more_values_.assign(more_indices_.size(), 0.0F);
    if (!more_indices_.empty()) memory.take_numbers(more_indices_, sends_zeros(), more_values_.data());
    has_more = true;
    const SiftNorms sifted = collect(memory, out);
    end();
    ++step_;
    return sifted;
  } catch (...) {  // out of memory
    if (has_more) memory.write_numbers(more_indices_, more_values_.data());
    memory.write_numbers(taken_.indices, taken_.values.data());
    memory.restore(gradient);
    out.clear(out.dim);
    throw;
  }
}

// Appends the entries of all units to `out`, and puts back those that are not sent.
SiftNorms UnitSparsifier::collect(ErrorMemory& memory, SparseVector& out) {
  SiftNorms sifted;
  lost_.clear(out.dim);
  set_kth(taken_.kth);
  const bool all_are_sent = taken_.chosen_twice || (!narrows() && more_indices_.empty());
  const bool has_norms = all_are_sent && !taken_.sent_norm2.empty();
  if (has_norms && !units_.back().dense) {  // in order, and all of them
    for (std::size_t u = 0; u < units_.size(); ++u) {
      sifted.accumulated_norm2 += taken_.accumulated_norm2[u];
      sifted.sent_norm2 += taken_.sent_norm2[u];
    }
    make_room(out, taken_.indices.size());
    append(out, taken_.indices.data(), taken_.values.data(), taken_.indices.size());
    return sifted;
  }
  std::size_t begin = 0;
  std::size_t more = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    const std::size_t end = taken_.ends[u];
    sifted.accumulated_norm2 += taken_.accumulated_norm2[u];
    if (has_norms && !unit.dense) {
      sifted.sent_norm2 += taken_.sent_norm2[u];
      make_room(out, end - begin);
      append(out, taken_.indices.data() + begin, taken_.values.data() + begin, end - begin);
    } else {
      more = take_unit(unit, begin, end, more);
      sifted.sent_norm2 +=
          has_norms ? taken_.sent_norm2[u] : memory.norm2(unit, {chosen_.indices(), chosen_.size()}, chosen_.values());
      make_room(out, chosen_.size());
      append(out, chosen_, unit.dense);
    }
    begin = end;
  }
  if (lost_.size() > 0) memory.put_back(lost_);
  return sifted;
}

// Sets chosen_ to the entries that the unit sends: of those that were taken, from `begin` to `end`, and of the others
// from number `more` on. Returns the number of the first after these.
std::size_t UnitSparsifier::take_unit(const Unit& unit, std::size_t begin, std::size_t end, std::size_t more) {
  chosen_.clear();
  chosen_.reserve(end - begin);
  std::copy(taken_.indices.begin() + static_cast<std::ptrdiff_t>(begin),
            taken_.indices.begin() + static_cast<std::ptrdiff_t>(end), chosen_.next_index());
  std::copy(taken_.values.begin() + static_cast<std::ptrdiff_t>(begin),
            taken_.values.begin() + static_cast<std::ptrdiff_t>(end), chosen_.next_value());
  chosen_.added(end - begin);
  if (unit.dense) return more;

  const Segment& last = unit.segments.back();
  const auto after = std::lower_bound(more_indices_.begin() + static_cast<std::ptrdiff_t>(more), more_indices_.end(),
                                      last.begin + last.size);
  const auto others = static_cast<std::size_t>(after - more_indices_.begin());
  more_.clear();
  more_.reserve(others - more);
  for (std::size_t i = more; i < others; ++i) {
    // One that the pass has taken is zero now, as are the small tensors, which are sent whole.
    if (kernels::key_of(more_values_[i]) == 0 && !sends_zeros()) continue;
    *more_.next_index() = more_indices_[i];
    *more_.next_value() = more_values_[i];
    more_.added(1);
  }
  if (more_.size() > 0) chosen_.merge(more_);

  if (!narrows() || taken_.chosen_twice) return others;
  narrow(unit, chosen_);
  make_room(lost_, chosen_.lost_count());
  append(lost_, chosen_.lost_indices(), chosen_.lost_values(), chosen_.lost_count());
  return others;
}

}  // namespace sparsewire
