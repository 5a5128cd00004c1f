// Cells and records of a plan, and their order in files.
#pragma once

#include <vector>

#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// Whether both have the same settings. A record that was read does not know its place in the plan.
bool is_same(const Cell& a, const Cell& b);

// By phase, cell and seed, as the plan has them.
std::vector<const Record*> in_plan_order(const Plan& plan, const std::vector<Record>& records);

}  // namespace sparsewire::study
