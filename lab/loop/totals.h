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
  std::uint64_t entries_up = 0;       // counted likewise: of what each worker sent, and of the update
  std::uint64_t entries_down = 0;
  // Of one rank: the sum of its worker's StepStats::memory_norm2, times its weight and the number of workers. Of all
  // ranks: the total error (sparsewire/worker.h), the servers' included.
  double total_error = 0;
  double server_error = 0;                                 // sum of StepStats::server_memory_norm2
  double peak_memory_norm2 = 0;                            // the largest StepStats::memory_norm2; of all ranks: of any
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step

  // `share`: the weight of the worker times the number of workers.
  void add(const StepStats& stats, std::uint64_t dim, double share);
};

// Of all ranks: sums of bytes and bits; the error is a mean over the workers and the sum over the servers; the loss of
// rank 0. REQUIRES: `all` is not empty.
Totals sum(const std::vector<Totals>& all);

}  // namespace sparsewire::train
