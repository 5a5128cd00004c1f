// Which samples a worker takes in a step: all that it has, in a random order, before it takes one again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/hold_back.h"
#include "data/split.h"
#include "problems/problem.h"

namespace sparsewire::train {

// A share of the samples is held back for validation (hold_back.h), the other ones are divided among the workers
// (split.h). A worker goes through its samples again and again, each time (a pass) in a new order, drawn from (seed,
// worker, number of the pass). Step t takes entries t*batch ... t*batch + batch - 1 of that endless sequence: all
// batches have the same size, and one may have the end of a pass and the beginning of the next.
class Batches {
 public:
  // `labels`: one for each sample, below 256. `batch`: samples of a worker in a step; 0: all that it has, in their
  // order. Reads workers, seed, validation and split of `place`; an empty split is `iid`. Throws UsageError.
  Batches(std::span<const std::uint8_t> labels, std::uint64_t batch, const ProblemPlace& place);

  // Sample numbers, which ascend.
  std::span<const std::uint32_t> training() const noexcept { return parts_.training; }
  std::span<const std::uint32_t> validation() const noexcept { return parts_.validation; }

  // The worker's training samples.
  std::size_t samples_of(int worker) const noexcept { return split_.size(worker); }
  // The number of samples in a batch of the worker.
  std::size_t size_of(int worker) const noexcept { return batch_ == 0 ? samples_of(worker) : batch_; }

  // The samples of the worker's batch. They stay valid until the next call for this worker.
  // THREADS: different workers at the same time. COST: a new order of the worker's samples where a pass begins, or
  // where the step does not follow the last one.
  std::span<const std::uint32_t> take(int worker, std::uint64_t step);

 private:
  struct Pass {
    std::uint64_t number = 0;
    std::vector<std::uint32_t> order;  // sample numbers; empty: not drawn yet
    std::vector<std::uint32_t> batch;
  };

  void draw_pass(int worker, std::uint64_t number);

  HeldBack parts_;
  WorkerSamples split_;  // of parts_.training
  std::uint64_t batch_;
  std::uint64_t seed_;
  std::vector<Pass> passes_;  // one for each worker
};

}  // namespace sparsewire::train
