// Four workers on threads of one process solve a least-squares problem. In each step a worker sends 10 % of its
// gradient, and gets back 10 % of the sum. All end with the same weights, at the optimum.
//
//   ./threads
#include <sparsewire/worker.h>

#include <cstddef>
#include <cstdio>
#include <vector>

#include "least_squares.h"

int main() {
  constexpr int kWorkers = 4;
  constexpr int kSteps = 500;
  constexpr float kLearningRate = 0.3F;

  float distance = 0;
  // run_on_threads calls the function once for each worker, each on a thread of its own, and waits for all.
  sparsewire::run_on_threads(kWorkers, [&](sparsewire::Transport& transport) {
    const LeastSquares problem(transport.rank());

    // Every worker has its own copy of the weights. They start equal, and stay equal to the last bit, because every
    // worker applies the same updates.
    std::vector<float> weights(LeastSquares::kWeights, 0.0F);
    std::vector<float> gradient(LeastSquares::kWeights);

    sparsewire::Worker worker({.sparsifier = "topk:ratio=0.1",  // uplink: the largest 10 % of memory + gradient
                               .exchange = "sharded",           // every worker sums a part of the entries
                               .downlink = "topk:ratio=0.1"},   // and answers with the largest 10 % of its part
                              LeastSquares::kWeights, transport);

    for (int step = 0; step < kSteps; ++step) {
      problem.gradient(weights, gradient);
      // The update is the mean over the workers of what was sent. What was not sent stays in the error memory, and is
      // sent in a later step.
      worker.step(gradient);
      worker.apply_update(weights, kLearningRate);
    }

    if (transport.rank() == 0) {
      distance = problem.distance(weights);
      const sparsewire::StepStats& stats = worker.stats();
      std::printf("last step of rank 0: %llu of %zu entries sent, %llu bytes up, %llu bytes down\n",
                  static_cast<unsigned long long>(stats.entries_sent), weights.size(),
                  static_cast<unsigned long long>(stats.bytes_up), static_cast<unsigned long long>(stats.bytes_down));
    }
  });

  std::printf("largest difference from the solution: %.1e\n", static_cast<double>(distance));
  return distance < 1e-4F ? 0 : 1;
}
