// What logistic regression has in common for two labels and for more: options, and which samples a step takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "data/random.h"
#include "data/split.h"
#include "problems/problem.h"
#include "problems/samples.h"

namespace sparsewire::train {

struct LinearOptions {
  std::optional<double> l2;   // nothing: L/10000, with the smoothness L
  std::uint64_t batch = 1;    // samples of a worker in a step; 0: all it has
  std::string split = "all";  // a spec
  bool intercept = false;     // the last feature is always 1, and its weights have no penalty
};

// (l2/2) ||x||^2 of the first `count` weights: all but those of the intercept, which are the last.
struct Penalty {
  double l2 = 0;
  std::size_t count = 0;

  double at(std::span<const double> weights) const noexcept {
    double weights2 = 0;
    for (const double weight : weights.first(count)) weights2 += weight * weight;
    return l2 / 2 * weights2;
  }
  // Sets `gradient` to that of the penalty.
  void begin_gradient(std::span<const double> weights, std::span<double> gradient) const noexcept {
    for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = i < count ? l2 * weights[i] : 0;
  }
};

class LinearBatches {
 public:
  // `labels`: of the training samples.
  LinearBatches(std::span<const std::uint32_t> labels, const LinearOptions& options, const ProblemPlace& place)
      : samples_(make_split(options.split, {.labels = labels, .workers = place.workers, .seed = place.seed})),
        batch_(options.batch),
        seed_(place.seed),
        all_(labels.size()),
        workers_(static_cast<std::size_t>(place.workers)),
        balances_(split_info(options.split).weights_by_size && !place.has_weights) {}

  std::uint64_t samples_of(int worker) const noexcept { return samples_.size(worker); }

  // What each sample of a batch counts. With round_robin a worker with one sample more weighs more, so that the mean
  // over the workers is the mean over all samples.
  double share(int worker) const noexcept {
    const std::size_t own = samples_.size(worker);
    const std::size_t taken = batch_ == 0 ? own : batch_;
    if (!balances_) return 1 / static_cast<double>(taken);
    return static_cast<double>(own * workers_) / static_cast<double>(all_ * taken);
  }

  // Calls take(sample) for each sample of the batch.
  template <class Take>
  void for_each(int worker, std::uint64_t step, const Take& take) const {
    const std::size_t own = samples_.size(worker);
    Draws draws(seed_, Use::batch, worker, step);
    for (std::size_t i = 0; i < (batch_ == 0 ? own : batch_); ++i) {
      take(samples_.sample(worker, batch_ == 0 ? i : draws.below(static_cast<std::uint32_t>(own))));
    }
  }

 private:
  WorkerSamples samples_;
  std::uint64_t batch_;
  std::uint64_t seed_;
  std::size_t all_;  // samples for training
  std::size_t workers_;
  bool balances_;
};

// For more than two labels.
std::unique_ptr<Problem> make_softmax(SampleSets sets, const LinearOptions& options, const ProblemPlace& place);

}  // namespace sparsewire::train
