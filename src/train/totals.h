// What a training counts from its first step on, also over interruptions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sparsewire/worker.h"

namespace sparsewire::train {

// Of one rank, or of all.
struct Totals {
  std::uint64_t bytes_up = 0;  // of all messages of steps, step trailers included
  std::uint64_t bytes_down = 0;
  std::uint64_t bytes_served = 0;
  std::uint64_t paper_bits_up = 0;    // as publications count: 64 bits for an entry, 32 for each of a full vector, and
  std::uint64_t paper_bits_down = 0;  // every worker sends what it chose and receives the update
  double total_error = 0;             // sum of StepStats::memory_norm2
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step

  void add(const StepStats& stats, std::uint64_t dim);
};

// Of all ranks: sums of bytes and bits, the mean of the error, the loss of rank 0. REQUIRES: `all` is not empty.
Totals sum(const std::vector<Totals>& all);

}  // namespace sparsewire::train
