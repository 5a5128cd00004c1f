// The order of records in files.
#pragma once

#include <vector>

#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// By phase, cell and seed, as the plan has them.
std::vector<const Record*> in_plan_order(const Plan& plan, const std::vector<Record>& records);

}  // namespace sparsewire::study
