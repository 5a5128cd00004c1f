#include "study/order.h"

#include <algorithm>
#include <tuple>

namespace sparsewire::study {
namespace {

std::size_t place_of(const Cell& cell, const Plan& plan) {
  const auto found =
      std::find_if(plan.cells.begin(), plan.cells.end(), [&](const Cell& one) { return is_same(one, cell); });
  return static_cast<std::size_t>(found - plan.cells.begin());
}

}  // namespace

bool is_same(const Cell& a, const Cell& b) {
  return a.method == b.method && a.ratio == b.ratio && a.lr == b.lr && a.own == b.own;
}

std::vector<const Record*> in_plan_order(const Plan& plan, const std::vector<Record>& records) {
  const std::vector<std::string> phases{kPilot, kProbe, kTune, kJudge};
  using Key = std::tuple<std::size_t, std::size_t, std::uint64_t, std::string>;
  std::vector<std::pair<Key, const Record*>> keyed;
  for (const Record& record : records) {
    const auto phase = static_cast<std::size_t>(std::find(phases.begin(), phases.end(), record.phase) - phases.begin());
    keyed.emplace_back(Key(phase, place_of(record.cell, plan), record.seed, record.id), &record);
  }
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Record*> ordered;
  for (const auto& [key, record] : keyed) ordered.push_back(record);
  return ordered;
}

}  // namespace sparsewire::study
