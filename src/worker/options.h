// The list of all options of a worker. What must be the same on all ranks is found from it.
#pragma once

#include "sparsewire/worker_config.h"

namespace sparsewire {

enum class AcrossRanks : bool { must_be_equal, may_differ };

// Calls visit(name, value, across_ranks) for each option. The structured binding must name every member of
// WorkerConfig, so this does not compile after a member was added, until it is added here.
template <class Config, class Visit>
void for_each_option(Config& config, Visit visit) {
  auto& [sparsifier, feedback, exchange, average, codec, downlink, downlink_codec, downlink_feedback, scope, weight,
         seed, check_every, pool] = config;
  visit("sparsifier", sparsifier, AcrossRanks::must_be_equal);
  visit("feedback", feedback, AcrossRanks::must_be_equal);
  visit("exchange", exchange, AcrossRanks::must_be_equal);
  visit("average", average, AcrossRanks::must_be_equal);
  visit("codec", codec, AcrossRanks::must_be_equal);
  visit("downlink", downlink, AcrossRanks::must_be_equal);
  visit("downlink_codec", downlink_codec, AcrossRanks::must_be_equal);
  visit("downlink_feedback", downlink_feedback, AcrossRanks::must_be_equal);
  visit("scope", scope, AcrossRanks::must_be_equal);
  visit("weight", weight, AcrossRanks::may_differ);
  visit("seed", seed, AcrossRanks::must_be_equal);
  visit("check_every", check_every, AcrossRanks::must_be_equal);
  visit("pool", pool, AcrossRanks::may_differ);
}

}  // namespace sparsewire
