// The training itself, as one rank sees it; all ranks run it together. loop.cc shows it on one screen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sparsewire/transport.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/metrics.h"
#include "train/problem.h"

namespace sparsewire::train {

// REQUIRES: `problem` was made for as many workers as the transport has ranks; `config.workers` says how many.
struct Run {
  const TrainConfig& config;
  Problem& problem;
  Transport& transport;
  // Whether somebody wants it to stop: asked in every step, on every rank.
  std::function<bool()> stop_requested = [] { return false; };
  // On rank 0: after every step, and for what people should know.
  std::function<void(const StepReport&)> on_step = [](const StepReport&) {};
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

// The same on every rank, but for the evaluation.
struct Result {
  bool finished = false;                 // all steps are done; otherwise somebody wanted it to stop
  std::uint64_t step = 0;                // steps done
  std::uint64_t first_step = 0;          // of these, by the training that was resumed
  std::optional<Evaluation> evaluation;  // on rank 0, if finished
  Totals totals;                         // bytes of all workers, their mean error, the last loss
  std::uint32_t weights_crc32c = 0;
  std::optional<std::string> checkpoint;  // the newest
};

// Collective. Throws SharedError (wrong use, or a file that cannot be written or a training that diverged, on all ranks
// the same), TransportError, ReplicasDiffer.
Result train(const Run& run);

}  // namespace sparsewire::train
