// The results of a part of an experiment (deep.h): for people, and as numbers for the report.
#pragma once

#include <string>
#include <vector>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {

// A title, and a row for each method and ratio.
std::string table_of(const Outcome& outcome);

// Of all runs: `stage` is tuning or judging.
void add_numbers(const Outcome& outcome, std::vector<Measured>& measured);

// Entries that a worker received in a step: mean over the steps of a judging run. Nothing if it diverged, or there is
// none.
std::optional<double> entries_down(const Outcome& outcome, std::string_view method, std::uint64_t seed);
// Mean over the seeds too.
std::optional<double> entries_down(const Outcome& outcome, std::string_view method);

}  // namespace sparsewire::reproduce
