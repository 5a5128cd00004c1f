// What decides about Top-k one way and both ways (downlink_deep.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "reproduce/deep_outcome.h"
#include "reproduce/reproduction.h"

namespace sparsewire::reproduce {

// The paper's accuracies after 100 passes, from the authors' result files.
struct Published {
  std::uint64_t workers;
  double uplink;
  double both_ways;
  double sgd;
};

// Both ways must be as accurate as the others, to half a point, and the server's answer about N times smaller; where
// runs are as long as the paper's, accuracies must be the published ones, to half a point. Parts other than tables are
// described only.
void judge_downlink(const Outcomes& outcomes, const std::vector<Published>& published, Result& result);

}  // namespace sparsewire::reproduce
