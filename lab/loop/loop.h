// The training loop, run by all ranks together. loop.cc shows it on one screen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loop/checkpoint.h"
#include "loop/config.h"
#include "loop/evaluation.h"
#include "loop/metrics.h"
#include "problems/problem.h"
#include "sparsewire/gradient.h"
#include "sparsewire/transport.h"

namespace sparsewire::train {

// REQUIRES: `problem` was made for as many workers as the transport has ranks; `config.workers` says how many.
struct Run {
  const TrainConfig& config;
  Problem& problem;
  Transport& transport;
  // Start from these, instead of what --init-weights names. On rank 0; empty: there are none.
  std::span<const float> initial_weights = {};
  // Whether the training should stop: asked in every step, on every rank.
  std::function<bool()> stop_requested = [] { return false; };
  // Called on rank 0: after every step, and with messages for the user.
  std::function<void(const StepReport&)> on_step = [](const StepReport&) {};
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

// The same on every rank, except for the evaluation.
struct Result {
  bool finished = false;                 // all steps are done; otherwise it was asked to stop
  std::uint64_t step = 0;                // steps done
  std::uint64_t first_step = 0;          // how many of them the training did that was resumed
  std::optional<Evaluation> evaluation;  // on rank 0, if finished
  Totals totals;                         // of all workers
  std::vector<float> weights = {};       // on rank 0
  std::uint32_t weights_crc32c = 0;
  Device sifted_on = {};                  // where gradients and weights were
  std::optional<std::string> checkpoint;  // the newest
  Json changes = Json::array();           // Manifest::changes
  std::optional<double> threshold = {};   // of the sparsifier, and of the downlink, as rank 0 has them
  std::optional<double> downlink_threshold = {};
};

// Collective. Throws SharedError, the same on all ranks (wrong options, a file that cannot be written, a training that
// diverged), TransportError, ReplicasDiffer.
Result train(const Run& run);

}  // namespace sparsewire::train
