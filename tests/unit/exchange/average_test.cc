// The mean over those who sent an entry: by hand, with weights that change, and what is refused. exchange_test.cc has
// it against a simulation. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exchange/bodies.h"
#include "unit/usage_error.h"

namespace sparsewire::average_test {
namespace {

using ::testing::HasSubstr;

WorkerConfig senders(const std::string& sparsifier, const std::string& exchange) {
  return {.sparsifier = sparsifier, .exchange = exchange, .average = Average::senders};
}

std::vector<float> update_of(const Worker& worker) {
  std::vector<float> update(worker.layout().dim());
  worker.write_update(update);
  return update;
}

// Ranks 0 and 1 send entry 0, rank 1 entry 2, too, and nobody entry 3.
TEST(AverageOfSenders, DividesByTheWeightsOfThoseWhoSent) {
  for (const char* exchange : {"allgather", "server", "sharded"}) {
    run_on_threads(3, [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      WorkerConfig config = senders("threshold:lambda=1", exchange);
      config.weight = std::array{1.0, 3.0, 4.0}[rank];
      Worker worker(config, 4, transport);
      const std::vector<std::vector<float>> gradients = {{8, 0.5F, 0, 0}, {16, 0, 2, 0}, {0, 0, 0.25F, 0.5F}};
      worker.step(gradients[rank]);
      EXPECT_EQ(update_of(worker), (std::vector<float>{14, 0, 2, 0})) << exchange;  // (1*8 + 3*16) / 4
    });
  }
}

TEST(AverageOfSenders, TakesTheWeightsOfTheStep) {
  for (const char* exchange : {"allgather", "server", "sharded"}) {
    run_on_threads(2, [&](Transport& transport) {
      Worker worker(senders("threshold:lambda=1", exchange), 2, transport);
      const bool is_first = transport.rank() == 0;
      const std::vector<float> gradient = {is_first ? 8.0F : 16.0F, is_first ? 0.0F : 4.0F};
      worker.step(gradient, {.loss = is_first ? 1.0 : 2.0, .weight = is_first ? 3 : 1});
      EXPECT_EQ(update_of(worker), (std::vector<float>{10, 4})) << exchange;
      EXPECT_EQ(worker.stats().loss, 1.25);
      worker.step(gradient);
      EXPECT_EQ(update_of(worker), (std::vector<float>{12, 4})) << "that of the options again";
      worker.step(gradient, {.loss = 1, .weight = is_first ? 0 : 1});
      EXPECT_EQ(update_of(worker), (std::vector<float>{16, 4})) << "rank 0 has no samples";
      worker.step(gradient, {.loss = 1, .weight = 0});
      EXPECT_EQ(update_of(worker), (std::vector<float>{0, 0})) << "nobody has";
    });
  }
}

// All ranks learn of it, and the next step can follow.
TEST(AverageOfSenders, RefusesAWeightThatIsNone) {
  run_on_threads(2, [](Transport& transport) {
    Worker worker(senders("topk:k=1", "allgather"), 4, transport);
    const std::vector<float> gradient = {1, 2, 3, 4};
    for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      const bool is_first = transport.rank() == 0;
      try {
        worker.step(gradient, {.weight = is_first ? wrong : 1.0});
        ADD_FAILURE() << wrong;
      } catch (const UsageError& error) {
        EXPECT_TRUE(is_first);
        EXPECT_THAT(error.what(), HasSubstr("is not in [0, inf)"));
      } catch (const RankFailed& error) {
        EXPECT_FALSE(is_first);
        EXPECT_EQ(error.rank(), 0);
      }
    }
    worker.step(gradient, {.weight = 2});
    EXPECT_EQ(worker.stats().step, 1U);
  });
}

TEST(AWeightOfOneStep, IsRefusedWhereTheSumOverAllIsNeeded) {
  std::vector<WorkerConfig> configs = {senders("regtopk:k=1", "allgather"),
                                       senders("topk:k=1", "auto"),
                                       senders("dense", "dense"),
                                       {.sparsifier = "topk:k=1"}};
  for (const WorkerConfig& config : configs) {
    run_on_threads(1, [&](Transport& transport) {
      Worker worker(config, 4, transport);
      const std::vector<float> gradient = {1, 2, 3, 4};
      EXPECT_THAT(usage_error_of([&] { worker.step(gradient, {.weight = 1}); }), HasSubstr("needs average senders"));
      worker.step(gradient);
    });
  }
}

// RegTop-k learns from the sum over all, and an all-reduce does not say who sent an entry.
TEST(AverageOfSenders, IsRefusedWhereItCannotBe) {
  run_on_threads(2, [](Transport& transport) {
    const auto error_of = [&](WorkerConfig config, const std::string& downlink = {}) {
      config.downlink = downlink;
      return usage_error_of([&] { const Worker worker(config, 100, transport); });
    };
    EXPECT_EQ(error_of(senders("regtopk:ratio=0.1", "allgather")), "");
    EXPECT_THAT(error_of(senders("regtopk:ratio=0.1", "server")), HasSubstr("take exchange allgather"));
    EXPECT_THAT(error_of(senders("regtopk:ratio=0.1", "sharded"), "topk:ratio=0.1"),
                HasSubstr("take exchange allgather"));
    EXPECT_THAT(error_of(senders("topk:ratio=0.1", "dense")), HasSubstr("does not tell who sent"));
    EXPECT_EQ(error_of(senders("dense", "dense")), "");
  });
}

TEST(AverageOfSenders, CannotBeChangedOrMeasured) {
  run_on_threads(2, [](Transport& transport) {
    WorkerConfig config = senders("topk:k=1", "allgather");
    Worker worker(config, 4, transport);
    const std::vector<float> gradient = {1, 2, 3, 4};
    worker.step(gradient);
    EXPECT_THAT(usage_error_of([&] { worker.measure_compression(); }), HasSubstr("needs average all"));
    config.average = Average::all;
    EXPECT_THAT(usage_error_of([&] { worker.retune(config); }), HasSubstr("the average must stay"));
    Worker other(config, 4, transport);
    Worker* const worker_of[] = {&worker};
    EXPECT_THAT(usage_error_of([&] { other.adopt(worker_of); }), HasSubstr("the average"));
  });
}

// A worker's memory is its own, whatever the weights are.
TEST(AverageOfSenders, TakesAMemoryOverAsItIs) {
  run_on_threads(2, [](Transport& transport) {
    const bool is_first = transport.rank() == 0;
    WorkerConfig config = senders("topk:k=1", "allgather");
    Worker worker(config, 4, transport);
    worker.step(std::vector<float>{1, 2, 3, 4});
    const std::vector<float> before = worker.memory();
    config.weight = is_first ? 5 : 1;
    Worker other(config, 4, transport);
    Worker* const worker_of[] = {&worker};
    other.adopt(worker_of);
    EXPECT_EQ(other.memory(), before);
  });
}

}  // namespace
}  // namespace sparsewire::average_test
