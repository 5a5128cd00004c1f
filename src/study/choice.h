// Which cell of each group is judged: the one with the smallest mean validation loss on the tuning seeds.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

struct Choice {
  Group group;
  std::optional<std::size_t> cell;  // index in Plan::cells; nothing if every cell diverged on some tuning seed
  std::size_t cells_tried = 0;
  bool at_low_edge = false;  // no cell of the group, also none that diverged, has a smaller learning rate
  bool at_high_edge = false;
};

// One for each of groups(plan), in that order. `records`: of the tuning seeds, in any order. A cell whose pilot
// diverged has none, and cannot be chosen. If there are no tuning seeds, each group has one cell, which is chosen.
std::vector<Choice> choose(const Plan& plan, const std::vector<Record>& records);

}  // namespace sparsewire::study
