// A sift whose memory lies on a device: one pass there takes entries out of all units; what remains to be decided about
// them is decided here.
#include <algorithm>
#include <numeric>

#include "sparsify/append.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/scores.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {

// What is taken by magnitudes: with other scores more than are sent. An entry of the last round may rank lower than its
// magnitude says, and all others rank by it. So the best n are among the entries of the last round, and the best n +
// (number of these) by magnitude.
void UnitSparsifier::make_choices() {
  const Scores& scores = rules_.scores;
  if (choices_are_made_ && scores.by == nullptr) return;
  choices_are_made_ = false;  // unless all are
  choices_.make(units_.size(), [&](std::size_t u) -> UnitChoice {
    const Rule& rule = rules_.of_units[u];
    if (rule.kind == Rule::Kind::drawn) return {};
    if (rule.kind == Rule::Kind::at_least) return {.threshold = rule.key()};
    if (scores.by == nullptr) return {.k = rule.n, .second_k = rule.then_draw};
    const Segment& last = units_[u].segments.back();
    const auto first = first_from(scores.last_round, units_[u].segments.front().begin);
    const auto after = first_from(scores.last_round, last.begin + last.size);
    return {.k = std::min(rule.n + static_cast<std::size_t>(after - first), units_[u].size), .second_k = rule.n};
  });
  choices_are_made_ = true;
}

// Lists the entries that are taken whatever their magnitude, ascending.
void UnitSparsifier::list_more() {
  more_indices_.clear();
  if (taken_.chosen_twice) return;
  for (const kernels::LastRound& last : rules_.scores.last_round) more_indices_.push_back(last.index);
  for (std::size_t u = 0; has_draws_ && u < units_.size(); ++u) {
    if (units_[u].dense) continue;
    const auto positions = runner_.draw(rules_.draws, u, units_[u], rules_.of_units[u].n);
    std::size_t i = 0;
    for (const Segment& segment : units_[u].segments) {
      for (; i < positions.size() && positions[i] < segment.position + segment.size; ++i) {
        more_indices_.push_back(static_cast<std::uint32_t>(segment.begin + (positions[i] - segment.position)));
      }
    }
  }
}

double UnitSparsifier::sift_on_device(const kernels::ScaledGradient* gradient, ErrorMemory& memory, SparseVector& out) {
  make_choices();
  const Scores& scores = rules_.scores;
  const bool is_scored = scores.by != nullptr && !scores.last_round.empty();
  kernels::SecondChoice second{.regularisation = scores.by, .last_round = scores.last_round};
  if (scores.by == nullptr) second.draw = rules_.draws.among_best();
  if (const auto bad = memory.take_from_units(units_, choices_, scores.elsewhere,
                                              is_scored || (narrows_ && scores.by == nullptr) ? &second : nullptr,
                                              gradient, taken_)) {
    throw_bad_gradient(name_, context_, step_, *gradient, memory, *bad);
  }
  bool has_more = false;
  try {
    list_more();
    more_values_.assign(more_indices_.size(), 0.0F);
    if (!more_indices_.empty()) memory.take_numbers(more_indices_, has_draws_, more_values_.data());
    has_more = true;
    collect(memory, out);
    end(taken_.kth);
    ++step_;
    return std::accumulate(taken_.accumulated_norm2.begin(), taken_.accumulated_norm2.end(), 0.0);
  } catch (...) {  // out of memory
    if (has_more) memory.write_numbers(more_indices_, more_values_.data());
    memory.write_numbers(taken_.indices, taken_.values.data());
    memory.restore(gradient);
    out.clear(out.dim);
    throw;
  }
}

// Appends the entries of all units to `out`, and puts back those that are not sent.
void UnitSparsifier::collect(ErrorMemory& memory, SparseVector& out) {
  lost_.clear(out.dim);
  const bool all_are_sent = taken_.chosen_twice || (!narrows_ && more_indices_.empty());
  const bool has_small_tensors = !units_.empty() && units_.back().dense;
  if (all_are_sent && !has_small_tensors) {  // in order, and all of them
    make_room(out, taken_.indices.size());
    append(out, taken_.indices.data(), taken_.values.data(), taken_.indices.size());
    return;
  }
  std::size_t begin = 0;
  std::size_t more = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    const std::size_t end = taken_.ends[u];
    more = take_unit(unit, begin, end, more);
    make_room(out, chosen_.size());
    append(out, chosen_, unit.dense);
    begin = end;
  }
  if (lost_.size() > 0) memory.put_back(lost_);
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
    if (kernels::key_of(more_values_[i]) == 0 && !has_draws_) continue;
    *more_.next_index() = more_indices_[i];
    *more_.next_value() = more_values_[i];
    more_.added(1);
  }
  if (more_.size() > 0) chosen_.merge(more_);

  if (!narrows_ || taken_.chosen_twice) return others;
  const Rule& rule = rules_.of_units[static_cast<std::size_t>(&unit - units_.data())];
  if (rule.then_draw > 0) {
    chosen_.rank(DrawnScore(rules_.draws.among_best()));
  } else {
    chosen_.rank(RegularisedScore(rules_.scores));
  }
  chosen_.keep_best(rule.then_draw > 0 ? rule.then_draw : rule.n);
  make_room(lost_, chosen_.lost_count());
  append(lost_, chosen_.lost_indices(), chosen_.lost_values(), chosen_.lost_count());
  return others;
}

}  // namespace sparsewire
