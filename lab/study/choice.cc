#include "study/choice.h"

#include <algorithm>
#include <cmath>

#include "study/order.h"
#include "study/statistics.h"
#include "text/number.h"

namespace sparsewire::study {
namespace {

// Whether `cell` has the smallest or the largest value of a list of its own: "low", "high" or "".
std::string edge_of(const std::string& name, const Cell& cell, const std::vector<const Cell*>& others) {
  const auto value = parse_number<double>(cell.own.at(name));
  if (!value) return "";
  bool has_lower = false;
  bool has_higher = false;
  for (const Cell* other : others) {
    const auto found = other->own.find(name);
    const auto one = found == other->own.end() ? std::nullopt : parse_number<double>(found->second);
    if (!one) return "";  // words have no order
    has_lower = has_lower || *one < *value;
    has_higher = has_higher || *one > *value;
  }
  if (has_lower == has_higher) return "";
  return has_lower ? "high" : "low";
}

void find_edges(const Plan& plan, Choice& choice) {
  const Cell& chosen = plan.cells[*choice.cell];
  std::vector<const Cell*> cells;
  for (const Cell& cell : plan.cells) {
    if (is_of(cell, choice.group)) cells.push_back(&cell);
  }
  choice.at_low_edge = std::none_of(cells.begin(), cells.end(), [&](const Cell* one) { return one->lr < chosen.lr; });
  choice.at_high_edge = std::none_of(cells.begin(), cells.end(), [&](const Cell* one) { return one->lr > chosen.lr; });
  for (const auto& [name, value] : chosen.own) {
    const std::string edge = edge_of(name, chosen, cells);
    if (!edge.empty()) choice.own_at_edge[name] = edge;
  }
}

bool has_better_mean(const Plan& plan, const TunedCell& one, const TunedCell& other) {
  return is_higher_better(plan, plan.tuned_by) ? *one.mean > *other.mean : *one.mean < *other.mean;
}

// Both can be chosen.
bool is_better(const Plan& plan, const TunedCell& one, const TunedCell& other) {
  if (one.sends_too_much() != other.sends_too_much()) return other.sends_too_much();
  return one.sends_too_much() ? *one.sent_of_asked < *other.sent_of_asked : has_better_mean(plan, one, other);
}

// The best of those that were passed over because they send too much.
std::optional<TunedCell> passed_over(const Plan& plan, const Group& group, const TunedCell& chosen,
                                     const std::vector<TunedCell>& tuned) {
  if (chosen.sends_too_much()) return chosen;
  std::optional<TunedCell> best;
  for (const TunedCell& one : tuned) {
    if (!is_of(plan.cells[one.cell], group) || !one.mean || !one.sends_too_much()) continue;
    if (has_better_mean(plan, one, chosen) && (!best || has_better_mean(plan, one, *best))) best = one;
  }
  return best;
}

}  // namespace

std::vector<TunedCell> tuned_cells(const Plan& plan, const std::vector<Record>& records) {
  std::vector<TunedCell> all;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    TunedCell tuned{.cell = i, .by_seed = {}, .mean = {}};
    const bool has_threshold = plan.methods[plan.cells[i].method_index].needs_pilot() && !plan.budget_bytes;
    std::vector<double> known;
    std::vector<double> sent;
    for (const std::uint64_t seed : plan.tune_seeds) {
      const auto run = std::find_if(records.begin(), records.end(), [&](const Record& record) {
        return record.phase == kTune && record.seed == seed && is_same(record.cell, plan.cells[i]);
      });
      tuned.by_seed.emplace_back();
      if (run == records.end()) continue;
      ++tuned.runs;
      if (run->has_diverged()) ++tuned.diverged;
      const double number = run->measure(plan.tuned_by);
      if (run->has_diverged() || !std::isfinite(number)) continue;
      tuned.by_seed.back() = number;
      known.push_back(number);
      sent.push_back(run->sent_of_asked());
    }
    if (!known.empty() && known.size() == plan.tune_seeds.size()) {
      tuned.mean = mean(known);
      if (has_threshold) tuned.sent_of_asked = mean(sent);
    }
    all.push_back(std::move(tuned));
  }
  return all;
}

std::vector<Choice> choose(const Plan& plan, const std::vector<Record>& records) {
  const std::vector<TunedCell> tuned = tuned_cells(plan, records);
  std::vector<Choice> choices;
  for (const Group& group : groups(plan)) {
    Choice choice{.group = group, .cell = {}};
    for (const TunedCell& one : tuned) {
      if (!is_of(plan.cells[one.cell], group)) continue;
      ++choice.cells_tried;
      const bool is_only = plan.tune_seeds.empty() && !choice.cell;
      const bool is_best = one.mean && (!choice.cell || is_better(plan, one, tuned[*choice.cell]));
      if (is_only || is_best) choice.cell = one.cell;
    }
    if (choice.cell) find_edges(plan, choice);
    if (choice.cell && !plan.tune_seeds.empty()) choice.too_much = passed_over(plan, group, tuned[*choice.cell], tuned);
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace sparsewire::study
