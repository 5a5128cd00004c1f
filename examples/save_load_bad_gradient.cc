// Two things that a long training needs.
//
// Save and load: what a worker has not sent yet is part of the training. It is saved with the weights, and training
// goes on from there with the same bits as if it had never stopped.
//
// A NaN in the gradient of one rank: all ranks get the same BadGradient, nothing has changed, and all go on.
//
//   ./save_load_bad_gradient
#include <sparsewire/errors.h>
#include <sparsewire/worker.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <vector>

namespace {

constexpr int kWorkers = 3;
constexpr std::size_t kWeights = 1000;
const sparsewire::WorkerConfig kConfig{
    .sparsifier = "topk:ratio=0.01", .exchange = "sharded", .downlink = "topk:ratio=0.01"};

std::vector<float> gradient_of(int rank, int step, const std::vector<float>& weights) {
  std::vector<float> gradient(kWeights);
  for (std::size_t i = 0; i < kWeights; ++i) {
    gradient[i] =
        weights[i] - std::cos(static_cast<float>(i) * static_cast<float>(rank + 1) + static_cast<float>(step));
  }
  return gradient;
}

// Steps `first` to `last` - 1. Returns how many were skipped because a gradient was bad.
int train(sparsewire::Worker& worker, int rank, int first, int last, std::vector<float>& weights,
          bool nan_on_rank_1 = false) {
  int skipped = 0;
  for (int step = first; step < last; ++step) {
    std::vector<float> gradient = gradient_of(rank, step, weights);
    if (nan_on_rank_1 && rank == 1 && step == first) gradient[7] = std::numeric_limits<float>::quiet_NaN();
    try {
      worker.step(gradient);
    } catch (const sparsewire::BadGradient& bad) {
      // Thrown on every rank, also on those whose gradient was fine, with the same rank, step and index. The error
      // memories are as before, to rounding. So all ranks can make the same decision: here, to skip this batch.
      if (bad.rank() == 1 && bad.index() == 7) ++skipped;
      if (rank == 0) std::printf("skipped a step: %s\n", bad.what());
      continue;
    }
    worker.apply_update(weights, 0.05F);
  }
  return skipped;
}

}  // namespace

int main() {
  int ranks_that_are_right = 0;
  sparsewire::run_on_threads(kWorkers, [&](sparsewire::Transport& transport) {
    const int rank = transport.rank();
    std::vector<float> weights(kWeights, 0.0F);
    sparsewire::Worker worker(kConfig, kWeights, transport);
    train(worker, rank, 0, 50, weights);

    // Save: the weights, which are the same on all ranks, and the state of every worker. A program would write them to
    // files. save() is not collective; all_gather is, and gives the states of all ranks to all.
    const std::vector<float> saved_weights = weights;
    std::vector<std::vector<std::byte>> saved_workers;
    transport.all_gather(worker.save(), saved_workers);

    train(worker, rank, 50, 100, weights);

    // Load: a new worker with the same configuration takes the states of all ranks, in rank order. load() is not
    // collective either, but all ranks must have loaded before the next step.
    std::vector<float> again = saved_weights;
    sparsewire::Worker loaded(kConfig, kWeights, transport);
    loaded.load(saved_workers);
    train(loaded, rank, 50, 100, again);
    const bool is_same = again == weights;
    if (rank == 0) std::printf("after save and load: %s\n", is_same ? "the same weights" : "OTHER WEIGHTS");

    // One bad gradient among 20: one step is skipped, on every rank.
    const int skipped = train(loaded, rank, 100, 120, again, /*nan_on_rank_1=*/true);

    // Every rank says what it found, and rank 0 counts.
    const std::byte mine{static_cast<unsigned char>(is_same && skipped == 1)};
    std::vector<std::vector<std::byte>> all;
    transport.gather(0, std::span(&mine, 1), all);
    for (const std::vector<std::byte>& one : all) ranks_that_are_right += std::to_integer<int>(one.at(0));
  });
  std::printf("%d of %d ranks are right\n", ranks_that_are_right, kWorkers);
  return ranks_that_are_right == kWorkers ? 0 : 1;
}
