// Which cell of each group is judged: the one with the best mean of Plan::tuned_by (the smallest validation loss) on
// the tuning seeds, of those that send about as much as was asked for.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// A threshold that was measured on one phase of the training may let many times as many entries pass in another. Such a
// cell has a lower loss after equally many steps, but not by the ratio that is compared.
inline constexpr double kMostOfAsked = 2;

// A cell on the tuning seeds.
struct TunedCell {
  std::size_t cell = 0;  // index in Plan::cells
  std::vector<std::optional<double>>
      by_seed;  // Plan::tuned_by, for each of Plan::tune_seeds; nothing where it diverged
  std::size_t runs = 0;
  std::size_t diverged = 0;
  std::optional<double> mean;  // only if all runs are there and none diverged: then it can be chosen
  // Where a threshold was measured: the entries that workers sent over those that the ratio asks for, mean over the
  // runs. Not with a budget of bytes, since runs that send more have fewer steps then.
  std::optional<double> sent_of_asked = {};

  bool sends_too_much() const { return sent_of_asked && *sent_of_asked > kMostOfAsked; }
};

struct Choice {
  Group group;
  std::optional<std::size_t> cell;  // index in Plan::cells; nothing if every cell diverged on some tuning seed
  std::size_t cells_tried = 0;
  bool at_low_edge = false;   // no cell of the group, also none that diverged, has a smaller learning rate
  bool at_high_edge = false;  // the same for a larger one. Both if there is one learning rate only
  // Its own parameters that are lists of numbers and have their smallest or largest value: "low", "high".
  std::map<std::string, std::string> own_at_edge = {};
  // A cell with a better mean that was not chosen because it sends too much, and how much; the chosen cell itself if
  // all do.
  std::optional<TunedCell> too_much = {};
};

// One for each of plan.cells, in that order.
std::vector<TunedCell> tuned_cells(const Plan& plan, const std::vector<Record>& records);

// One for each of groups(plan), in that order. `records`: of the tuning seeds, in any order. A cell whose pilot
// diverged has none, and cannot be chosen. One that sends too much is chosen only if all do: then the one that sends
// least. Of equally good cells the first is chosen. If there are no tuning seeds, each group has one cell, which is
// chosen.
std::vector<Choice> choose(const Plan& plan, const std::vector<Record>& records);

}  // namespace sparsewire::study
