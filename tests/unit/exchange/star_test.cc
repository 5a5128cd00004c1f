// The exchange `server` needs links to rank 0 only: to construct workers, also with options that differ, for steps,
// votes and comparisons of replicas, bad gradients, save and load. Ranks are threads.
#include "transport/star.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "exchange/bodies.h"
#include "unit/specs.h"

namespace sparsewire::star_test {
namespace {

using bodies::Bytes;
using bodies::Plan;
using bodies::Runner;
using ::testing::HasSubstr;

constexpr int kRanks = 4;

class OverAStar : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Sparsifiers, OverAStar, ::testing::ValuesIn(example_specs()), spec_as_name);

// Every spec of a sparsifier, and a threshold whose calibration ends within the run, so that there are votes.
TEST_P(OverAStar, AServerServesManySteps) {
  std::vector<std::string> downlinks = example_specs();
  downlinks.insert(downlinks.end(), {"", "threshold:ratio=0.1,calibrate=7"});
  for (const std::string& downlink : downlinks) {
    Plan plan = bodies::plan_of(GetParam(), {"server"});
    if (name_of(GetParam()) == "threshold") plan.config.sparsifier = "threshold:ratio=0.1,calibrate=5";
    plan.config.downlink = downlink;
    plan.config.check_every = 10;
    plan.layout = 300;
    run_on_threads(kRanks, [&](Transport& transport) {
      StarTransport star(transport);
      Runner run(plan, star);
      const std::uint64_t steps = bodies::kSlowBuild ? 30 : 200;
      for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
      run.gradient[7] = transport.rank() == 2 ? std::numeric_limits<float>::infinity() : 1.0F;
      EXPECT_TRUE(bodies::failure_of(run).has_value()) << plan.name();
      EXPECT_EQ(run.step(steps).step, steps + 1);
      bodies::require_same_everywhere(transport, std::span<const float>(run.weights), run.at(steps));
    });
  }
}

TEST_P(OverAStar, WorkersAreSavedAndLoaded) {
  for (const char* downlink : {"", "topk:ratio=0.1"}) {
    Plan plan = bodies::plan_of(GetParam(), {"server"});
    plan.config.downlink = downlink;
    std::vector<Bytes> states(kRanks);
    std::vector<std::uint64_t> sums(kRanks);
    const auto body = [&](Transport& transport, bool loads) {
      StarTransport star(transport);
      Runner run(plan, star);
      const auto rank = static_cast<std::size_t>(transport.rank());
      for (std::uint64_t t = 0; t < 10 && !loads; ++t) run.step(t);
      if (loads) run.worker.load(states);
      transport.barrier();
      if (!loads) states[rank] = run.worker.save();
      run.sum = 0;
      for (std::uint64_t t = 10; t < 20; ++t) run.step(t);
      if (loads) {
        EXPECT_EQ(run.sum, sums[rank]) << plan.name();
      }
      sums[rank] = run.sum;
    };
    run_on_threads(kRanks, [&](Transport& transport) { body(transport, false); });
    run_on_threads(kRanks, [&](Transport& transport) { body(transport, true); });
  }
}

TEST(AStar, IsEnoughToRefuseWorkersThatDisagreeOnAllRanks) {
  for (const int other : {0, 3}) {
    for (const char* exchange : {"sharded", "allgather", "dense", "auto"}) {
      std::atomic<int> refused = 0;
      run_on_threads(kRanks, [&](Transport& transport) {
        StarTransport star(transport);
        WorkerConfig config{.exchange = "server"};
        if (transport.rank() == other) config.exchange = exchange;
        try {
          const Worker worker(config, 1000, star);
        } catch (const UsageError& error) {
          EXPECT_THAT(error.what(), HasSubstr("exchange '" + std::string(exchange) + "'"));
          ++refused;
        }
      });
      EXPECT_EQ(refused, kRanks) << exchange;
    }
  }
}

// The transport itself: the other exchanges need other links.
TEST(AStar, HasNoOtherLinks) {
  for (const char* exchange : {"sharded", "allgather", "dense"}) {
    const bodies::Plan plan = bodies::plan_of("topk:ratio=0.1", {exchange});
    const auto body = [&](Transport& transport) {
      StarTransport star(transport);
      Runner run(plan, star);
      run.step(0);
    };
    EXPECT_ANY_THROW(run_on_threads(kRanks, body)) << exchange;
  }
}

// `auto` with a downlink asks all servers for their budgets when it is constructed; only its steps need other links.
TEST(AStar, IsEnoughToConstructAuto) {
  run_on_threads(kRanks, [&](Transport& transport) {
    StarTransport star(transport);
    EXPECT_NO_THROW(const Worker worker({.exchange = "auto", .downlink = "topk:ratio=0.1"}, 1000, star));
  });
}

}  // namespace
}  // namespace sparsewire::star_test
