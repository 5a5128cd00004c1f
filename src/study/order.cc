#include "study/order.h"

#include <algorithm>
#include <tuple>

namespace sparsewire::study {
namespace {

// The index of the first that is equal; of what is not there, the length.
template <class T>
std::size_t place_of(const T& one, const std::vector<T>& all) {
  return static_cast<std::size_t>(std::find(all.begin(), all.end(), one) - all.begin());
}

}  // namespace

std::vector<const Record*> in_plan_order(const Plan& plan, const std::vector<Record>& records) {
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::string>;
  const std::vector<std::string> phases{kPilot, kProbe, kTune, kJudge};
  std::vector<std::pair<Key, const Record*>> keyed;
  for (const Record& record : records) {
    const auto& seeds = record.phase == kJudge ? plan.seeds : plan.tune_seeds;
    keyed.emplace_back(
        Key(place_of(record.phase, phases), place_of(record.cell, plan.cells), place_of(record.seed, seeds), record.id),
        &record);
  }
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Record*> ordered;
  for (const auto& [key, record] : keyed) ordered.push_back(record);
  return ordered;
}

}  // namespace sparsewire::study
