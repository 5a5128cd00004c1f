// A gradient that is not finite on one rank, or a sum that overflows, fails on all ranks and changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "unit/exchange_cases.h"

namespace sparsewire::bad_gradients_test {
namespace {

using bodies::BadEntry;
using bodies::ExchangeCase;
using bodies::kRanks;
using bodies::Plan;
using bodies::Runner;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

TEST_P(EveryExchangeCase, FailsOnAllRanksIfOneGradientIsBad) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    Plan plan = EveryExchangeCase::plan(codec);
    if (is_all_reduce() && plan.config.codec != "auto") continue;
    plan.layout = 401;
    plan.fill = bodies::fill_exact_gradient;
    plan.weights = {2, 1, 1};  // exact shares, so that a step that is taken back leaves the same bits
    for (const auto& bad : std::vector<std::vector<BadEntry>>{{{0, 7, kNaN}},
                                                              {{1, 400, kInfinity}},
                                                              {{2, 0, -kInfinity}},
                                                              {{2, 5, kNaN}, {1, 300, kInfinity}},
                                                              {{0, 399, kNaN}, {1, 3, kNaN}},
                                                              {{0, 9, kNaN}, {1, 9, kNaN}, {2, 9, -kNaN}}}) {
      run_on_threads(3, [&](Transport& transport) { bodies::a_bad_gradient_fails_everywhere(transport, plan, bad); });
    }
  }
}

// A step that `auto` makes dense is taken back like any other.
TEST(BadGradientOnAllRanks, ChangesNoLaterStepWhereAutoGoesDense) {
  for (const char* sparsifier : {"threshold:lambda=12", "threshold:ratio=0.5,calibrate=2"}) {
    for (const char* downlink : {"", "topk:ratio=0.1", "dense"}) {
      for (const int bad_rank : {0, 2}) {
        Plan plan = bodies::plan_of(sparsifier, {"auto"});
        plan.config.downlink = downlink;
        plan.layout = 401;
        plan.fill = bodies::fill_swinging_gradient;
        plan.weights = {2, 1, 1};
        const std::vector<BadEntry> bad = {{bad_rank, 17, kNaN}};
        run_on_threads(3, [&](Transport& transport) { bodies::a_bad_gradient_fails_everywhere(transport, plan, bad); });
      }
    }
  }
}

TEST_P(EveryExchangeCase, FailsAlsoInTheFirstStepAndTwiceInARow) {
  Plan plan = EveryExchangeCase::plan();
  plan.layout = 101;
  for (const int ranks : kRanks) {
    run_on_threads(ranks, [&](Transport& transport) {
      Runner run(plan, transport);
      for (int round = 0; round < 3; ++round) {
        bodies::fill_gradient(run.gradient, plan.seed, transport.rank(), 0);
        if (transport.rank() == ranks - 1) run.gradient[100] = kNaN;
        const auto failure = bodies::all_fail(transport, plan, run, 0);
        EXPECT_EQ(failure.rank, ranks - 1);
        EXPECT_EQ(failure.index, 100U);
      }
      EXPECT_EQ(run.step(0).step, 1U);
      bodies::require_same_everywhere(transport, std::span<const float>(run.update), run.at(0));
    });
  }
}

// The memory of one worker holds numbers so large that adding the next gradient overflows.
TEST(BadGradientOnAllRanks, IsAlsoASumThatOverflows) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const int bad_rank : {0, 1, 2}) {
      Plan plan = bodies::plan_of("topk:k=3", setup);
      plan.layout = 101;
      if (setup.downlink) plan.config.downlink = "dense";
      run_on_threads(3, [&](Transport& transport) {
        Runner run(plan, transport);
        const bool is_bad = transport.rank() == bad_rank;
        if (is_bad) std::fill(run.gradient.begin(), run.gradient.begin() + 20, 3e38F);
        run.step();  // sends entries 0, 1, 2
        std::fill(run.gradient.begin(), run.gradient.end(), 1.0F);
        if (is_bad) run.gradient[17] = run.gradient[18] = 3e38F;
        const auto failure = bodies::all_fail(transport, plan, run, 1);
        EXPECT_EQ(failure.rank, bad_rank) << plan.name();
        EXPECT_EQ(failure.index, 17U) << plan.name();
        for (std::uint64_t t = 1; t < 5; ++t) run.step(t);
        bodies::require_same_everywhere(transport, std::span<const float>(run.weights), run.at(5));
      });
    }
  }
}

// No worker's memory overflows; only that of a server does, in one region if there are several.
TEST(BadGradientOnAllRanks, IsAlsoAServersSumThatOverflows) {
  for (const char* exchange : {"server", "sharded"}) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const std::size_t index : {150U, 171U, 200U}) {
        Plan plan = bodies::plan_of("dense", {exchange, true});
        plan.config.downlink = "topk:k=5";
        plan.layout = 201;
        plan.weights.clear();
        run_on_threads(ranks, [&](Transport& transport) {
          Runner run(plan, transport);
          std::fill(run.gradient.begin(), run.gradient.end(), 1.0F);
          for (std::size_t i = 0; i < run.gradient.size(); i += 3) run.gradient[i] = 3e38F;
          run.gradient[index] = 2e38F;
          run.step();  // the servers send the lowest few and keep the rest
          std::fill(run.gradient.begin(), run.gradient.end(), 0.5F);
          run.gradient[index] = 3e38F;
          const auto failure = bodies::all_fail(transport, plan, run, 1);
          EXPECT_EQ(failure.index, index) << plan.name();
          EXPECT_LT(failure.rank, ranks);
          for (std::uint64_t t = 1; t < 5; ++t) EXPECT_EQ(run.step(t).step, t + 1);
          bodies::require_same_everywhere(transport, std::span<const float>(run.weights), run.at(5));
        });
      }
    }
  }
}

// Shares are rounded, so they may add up to a little more than 1, and the mean of the largest float may overflow.
// Either all ranks throw, or the update is finite.
TEST(BadGradientOnAllRanks, IsThrownIfAMeanOverflows) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (int ranks = 2; ranks <= 12; ++ranks) {
      Plan plan = bodies::plan_of("dense", setup);
      if (setup.exchange == "auto") plan.config.sparsifier = "topk:k=2";
      plan.layout = 50;
      plan.weights.assign(static_cast<std::size_t>(ranks), 1.0);
      plan.weights[0] = 1.37;
      run_on_threads(ranks, [&](Transport& transport) {
        Runner run(plan, transport);
        run.gradient[33] = kLargest;
        const auto failure = bodies::failure_of(run);
        if (!failure) {
          EXPECT_TRUE(std::isfinite(run.update[33])) << plan.name() << " on " << ranks;
        } else {
          EXPECT_EQ(failure->index, 33U);
        }
      });
    }
  }
}

// Rounding up to bf16 may go beyond the largest float.
TEST(TheLargestNumber, TravelsWithEveryFormatOfValues) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const char* values : {"f32", "f16", "bf16", "int8", "int4", "int2"}) {
      for (const int ranks : {1, 2, 3, 7}) {
        for (const char* sparsifier : {"topk:k=2", "dense"}) {
          Plan plan = bodies::plan_of(sparsifier, setup, "auto:values=" + std::string(values));
          if (setup.exchange == "dense" && plan.config.codec != "auto:values=f32" &&
              plan.config.codec != "auto:values=bf16") {
            continue;
          }
          plan.layout = 50;
          run_on_threads(ranks, [&](Transport& transport) {
            Runner run(plan, transport);
            if (transport.rank() == ranks - 1) run.gradient[33] = kLargest;
            if (transport.rank() == 0) run.gradient[34] = -kLargest;
            const auto failure = bodies::failure_of(run);
            bodies::require(!failure, run.at(0) + " failed");
            for (const float number : run.update) {
              bodies::require(std::isfinite(number), run.at(0) + ": the update is not finite");
            }
            for (const float number : run.worker.memory()) {
              bodies::require(std::isfinite(number), run.at(0) + ": the memory is not finite");
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::bad_gradients_test
