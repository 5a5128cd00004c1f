// Logistic regression that starts far from its optimum: the setting of the experiments with thresholds.
//
// Sahu et al., 2021: 20 workers, one sample each per step, learning rate 1/(L + l2) with L the smoothness of the loss
// (problems/logreg.h), start at x* + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "problems/logreg.h"
#include "reproduce/rounds.h"

namespace sparsewire::reproduce {

struct FarStart {
  static constexpr int kWorkers = 20;

  // `data`: a LIBSVM file. Empty: synthetic data, 2000 samples with 300 features, a tenth of which are not zero.
  // `split`: how the data are divided among the workers (data/split.h); `all`: each draws from all. Throws UsageError.
  FarStart(const std::string& data, std::uint64_t seed, const std::string& split = "all");

  // Rounds with this sparsifier; the memory holds lr*gradient.
  Plan plan(const std::string& sparsifier, std::uint64_t rounds) const;
  // (f - f*)/(f0 - f*)
  double gap_at(std::span<const double> weights) const;

  std::uint64_t seed;
  std::unique_ptr<train::Logreg> problem;
  double lr;
  std::vector<double> start;
  double best_loss;   // f*
  double first_loss;  // f0
};

}  // namespace sparsewire::reproduce
