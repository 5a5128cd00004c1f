// The total error counts all that is owed: what was not sent, what codecs rounded off, and what servers keep. Compared
// with sums over the memories themselves.
#include <gtest/gtest.h>

#include <mutex>

#include "exchange/bodies.h"
#include "reference/reference.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"

namespace sparsewire::total_error_test {
namespace {

using bodies::Numbers;

constexpr int kSteps = 8;
constexpr std::uint64_t kDim = 301;

double server_norm2(const Worker& worker) {
  std::vector<double> owed(kDim);
  worker.add_server_memory(owed);
  double sum = 0;
  for (const double number : owed) sum += number * number;
  return sum;
}

WorkerConfig config_of(const char* sparsifier, const char* exchange, const char* codec, const char* downlink) {
  WorkerConfig config{.sparsifier = sparsifier, .exchange = exchange, .codec = codec};
  config.downlink = downlink;
  return config;
}

TEST(TotalError, IsTheSumOfAllMemories) {
  for (const WorkerConfig& config :
       {config_of("topk:ratio=0.1", "server", "auto", ""),
        config_of("topk:ratio=0.1", "server", "auto:values=int4", ""),
        config_of("topk:ratio=0.1", "allgather", "auto:values=bf16", ""),
        config_of("dense", "sharded", "auto:values=int2", ""), config_of("dense", "dense", "auto:values=bf16", ""),
        config_of("topk:ratio=0.1", "sharded", "auto:values=int8", "topk:ratio=0.1"),
        config_of("threshold:lambda=2", "server", "auto:values=int2", "topk:ratio=0.05"),
        config_of("topk:ratio=0.3", "server", "auto", "threshold:lambda=1")}) {
    for (const char* feedback : {"ef", "ef:decay=0.9,scale=lr", "momentum:m=0.5"}) {
      SCOPED_TRACE(config.sparsifier + " over " + config.exchange + ", " + config.codec + ", downlink '" +
                   config.downlink + "', " + feedback);
      WorkerConfig mine = config;
      mine.feedback = feedback;
      run_on_threads(3, [&](Transport& transport) {
        Worker worker(mine, Layout(kDim), transport);
        double total = 0;
        double served = 0;
        for (std::uint64_t step = 0; step < kSteps; ++step) {
          Numbers gradient(kDim);
          bodies::fill_gradient(gradient, 3, transport.rank(), step);
          worker.step(gradient, {.lr = 0.25F});
          const double now = reference::norm2(worker.memory());
          const double server = server_norm2(worker);
          total += now;
          served += server;
          const StepStats& stats = worker.stats();
          EXPECT_NEAR(stats.memory_norm2, now, 1e-9 * (now + stats.sent_norm2));
          EXPECT_NEAR(stats.server_memory_norm2, server, 1e-9 * (server + stats.sent_norm2));
          EXPECT_NEAR(stats.total_error, total, 1e-8 * (total + stats.sent_norm2));
          EXPECT_NEAR(stats.server_error, served, 1e-8 * (served + stats.sent_norm2));
        }
        const bool rounds = mine.codec != "auto";
        const bool is_dense = mine.sparsifier == "dense";
        EXPECT_EQ(worker.stats().total_error > 0, rounds || !is_dense);
      });
    }
  }
}

// With feedback none nothing stays, but the step has lost it.
TEST(TotalError, CountsWhatIsDropped) {
  WorkerConfig config{.sparsifier = "dense", .feedback = "none", .exchange = "allgather", .codec = "auto:values=int2"};
  run_on_threads(2, [&](Transport& transport) {
    Worker worker(config, Layout(kDim), transport);
    double total = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      Numbers gradient(kDim);
      bodies::fill_gradient(gradient, 3, 0, step);  // the same on both ranks: the update is what each of them sent
      worker.step(gradient);
      Numbers lost(kDim);
      worker.write_update(lost);
      for (std::size_t i = 0; i < kDim; ++i) lost[i] -= gradient[i];
      total += reference::norm2(lost);
    }
    EXPECT_GT(total, 0);
    EXPECT_NEAR(worker.stats().total_error, total, 1e-6 * total);
  });
}

// What is owed to the weights is bounded by it: ||sum_i w_i e_i + E||^2 <= 2 (sum_i w_i ||e_i||^2 + ||E||^2).
TEST(TotalError, BoundsWhatIsOwedToTheWeights) {
  WorkerConfig config = config_of("topk:ratio=0.1", "sharded", "auto:values=int4", "topk:ratio=0.05");
  std::mutex mutex;
  std::vector<double> owed(kDim);
  double bound = 0;
  double weights = 0;
  run_on_threads(3, [&](Transport& transport) {
    WorkerConfig mine = config;
    mine.weight = 1 + transport.rank();
    Worker worker(mine, Layout(kDim), transport);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      Numbers gradient(kDim);
      bodies::fill_gradient(gradient, 3, transport.rank(), step);
      worker.step(gradient);
    }
    const std::lock_guard lock(mutex);
    const Numbers memory = worker.memory();
    const auto weight = static_cast<double>(worker.weight());
    EXPECT_NEAR(weight, mine.weight / 6, 1e-7);
    weights += weight;
    for (std::size_t i = 0; i < kDim; ++i) owed[i] += weight * static_cast<double>(memory[i]);
    worker.add_server_memory(owed);
    bound += 2 * (weight * worker.stats().memory_norm2 + worker.stats().server_memory_norm2);
  });
  double norm2 = 0;
  for (const double number : owed) norm2 += number * number;
  EXPECT_NEAR(weights, 1, 1e-6);
  EXPECT_GT(norm2, 0);
  EXPECT_LE(norm2, bound);
}

}  // namespace
}  // namespace sparsewire::total_error_test
