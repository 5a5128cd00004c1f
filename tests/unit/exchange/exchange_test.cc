// What holds for all workers together, over every exchange: replicas agree, the update is the one of a simulation, and
// nothing is lost. Ranks are threads.
#include <gtest/gtest.h>

#include "exchange/simulation.h"
#include "unit/bits.h"
#include "unit/exchange_cases.h"

namespace sparsewire::exchange_test {
namespace {

using bodies::ExchangeCase;
using bodies::kRanks;
using bodies::kSlowBuild;
using bodies::Numbers;
using bodies::Plan;
using bodies::Runner;

INSTANTIATE_TEST_SUITE_P(All, EveryExchangeCase, every_spec_and_case(), spec_and_case_as_name);

// Codecs take turns, so that each is used with many sparsifiers and exchanges.
std::string codec_in_turn(int turn, bool is_all_reduce) {
  static const std::vector<std::string> all = {
      "auto",   "auto:values=bf16", "auto:values=int8",  "golomb:values=f16",        "auto:values=int4,block=64",
      "bitmap", "auto:values=int2", "raw32:values=bf16", "runs:values=int8,block=16"};
  if (is_all_reduce) return turn % 2 == 0 ? "auto" : "auto:values=bf16";
  return all[static_cast<std::size_t>(turn) % all.size()];
}

TEST_P(EveryExchangeCase, KeepsReplicasEqual) {
  int turn = static_cast<int>(spec().size() + exchange_case().name().size());
  for (const int ranks : kRanks) {
    Plan plan = EveryExchangeCase::plan(codec_in_turn(turn++, is_all_reduce()));
    plan.layout = 1001;
    run_on_threads(ranks, [&](Transport& transport) {
      bodies::replicas_stay_equal(transport, plan, kSlowBuild ? effort(8U, 20U) : effort(40U, 1000U));
    });
  }
}

TEST_P(EveryExchangeCase, LosesNothing) {
  for (const char* values : {"f32", "bf16", "int4"}) {
    if (is_all_reduce() && std::string(values) != "f32")
      continue;  // an all-reduce of bf16 rounds its sums: that is lost
    for (const int ranks : {1, 3, 8}) {
      Plan plan = EveryExchangeCase::plan("auto:values=" + std::string(values));
      plan.layout = 701;
      if (ranks == 8) plan.weights = {0, 1, 0.25, 7, 0, 1e-3};
      run_on_threads(ranks, [&](Transport& transport) {
        bodies::nothing_is_lost(transport, plan, kSlowBuild ? effort(6U, 12U) : effort(30U, 150U));
      });
    }
  }
}

// Compares `steps` updates of all ranks with the simulation's, bit for bit, and the workers' memories.
void check_simulation(const Plan& plan, int ranks, int steps, int votes = 0) {
  SCOPED_TRACE(plan.name() + " on " + std::to_string(ranks) + " ranks");
  Simulation simulation(plan, ranks);
  std::vector<Numbers> updates;
  for (int t = 0; t < steps; ++t) {
    std::vector<Numbers> gradients(static_cast<std::size_t>(ranks), Numbers(plan.layout.dim()));
    for (int r = 0; r < ranks; ++r) {
      bodies::fill_gradient(gradients[static_cast<std::size_t>(r)], plan.seed, r, static_cast<std::uint64_t>(t));
    }
    updates.push_back(simulation.step(gradients));
    for (float& number : updates.back()) number += 0.0F;  // of an update, -0 and 0 are the same
  }
  EXPECT_EQ(simulation.votes(), votes);
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::size_t t = 0; t < updates.size(); ++t) {
      run.step(t);
      for (float& number : run.update) number += 0.0F;
      ASSERT_TRUE(same_bits(std::span<const float>(updates[t]), run.update)) << "step " << t;
    }
    EXPECT_TRUE(same_bits(std::as_const(simulation.worker(transport.rank())).memory(), run.worker.memory()));
  });
}

// Also with downlinks. So RegTop-k has observed the updates that really came back.
TEST_P(EveryExchangeCase, AgreesWithASimulation) {
  if (is_all_reduce() || exchange_case().exchange == "auto")
    GTEST_SKIP() << "an all-reduce adds in an order of its own";
  for (const char* values : {"f32", "f16", "bf16", "int8", "int4,block=16", "int2"}) {
    for (const int ranks : kRanks) {
      Plan plan = EveryExchangeCase::plan("auto:values=" + std::string(values));
      plan.layout = 333;
      ASSERT_NO_FATAL_FAILURE(check_simulation(plan, ranks, kSlowBuild ? effort(4, 6) : effort(12, 30)));
    }
  }
}

// RegTop-k observes the sum that was not divided; a downlink's server sifts the means.
TEST_P(EveryExchangeCase, AgreesWithASimulationOfTheMeanOfSenders) {
  if (is_all_reduce() || exchange_case().exchange == "auto")
    GTEST_SKIP() << "an all-reduce does not say who sent an entry";
  for (const char* values : {"f32", "bf16", "int2"}) {
    for (const int ranks : kRanks) {
      Plan plan = EveryExchangeCase::plan("auto:values=" + std::string(values));
      plan.config.average = Average::senders;
      plan.layout = 333;
      if (ranks == 5) plan.weights = {1, 0, 2.25, 1, 0};
      const bool observes = plan.config.sparsifier.starts_with("regtopk");
      if (observes && plan.config.exchange != "allgather") GTEST_SKIP() << "needs the sum over all";
      ASSERT_NO_FATAL_FAILURE(check_simulation(plan, ranks, kSlowBuild ? effort(4, 6) : effort(12, 30)));
    }
  }
}

TEST(Exchange, AgreesWithASimulationWhereModelsAreSmallerThanRanks) {
  for (const char* sparsifier : {"topk:ratio=0.1", "topk:k=1", "randomk:ratio=0.5", "dense"}) {
    for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
      for (const std::uint64_t dim : {1U, 15U, 16U, 17U, 40U}) {
        for (const Average average : {Average::all, Average::senders}) {
          Plan plan = bodies::plan_of(sparsifier, setup);
          plan.config.average = average;
          plan.layout = dim;
          for (const int ranks : {2, 5}) ASSERT_NO_FATAL_FAILURE(check_simulation(plan, ranks, 5));
        }
      }
    }
  }
}

TEST(Exchange, AgreesWithASimulationLayerByLayerAndWithEachFeedback) {
  const Layout layout({{"a", 100}, {"b", 3}, {"c", 0}, {"d", 500}, {"e", 64}});
  for (const char* feedback : {"ef:decay=0.9", "none", "momentum:m=0.9", "momentum:m=0.5,clip=1"}) {
    for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded", true}}) {
      Plan plan = bodies::plan_of("topk:ratio=0.05,dense_below=10", setup, "auto:values=bf16");
      plan.config.scope = Scope::layer;
      plan.config.feedback = feedback;
      plan.config.downlink = setup.downlink ? "topk:k=50" : "";
      plan.config.downlink_codec = setup.downlink ? "raw32" : "";
      plan.layout = layout;
      ASSERT_NO_FATAL_FAILURE(check_simulation(plan, 3, 20));
    }
  }
}

TEST(Exchange, GivesTheSameBitsOverEveryExchangeWithoutDownlink) {
  for (const std::string& spec : example_specs()) {
    for (const char* codec : {"auto", "auto:values=f16", "auto:values=bf16"}) {
      for (const int ranks : kRanks) {
        std::map<std::string, std::uint64_t> sums;
        const bool can_count_senders = !spec.starts_with("regtopk");
        for (const char* exchange : {"allgather", "server", "sharded"}) {
          Plan plan = bodies::plan_of(spec, {exchange}, codec);
          plan.config.average = can_count_senders && ranks % 2 == 1 ? Average::senders : Average::all;
          run_on_threads(ranks, [&](Transport& transport) {
            const std::uint64_t sum = bodies::replicas_stay_equal(transport, plan, 15);
            if (transport.rank() == 0) sums[exchange] = sum;
          });
        }
        EXPECT_EQ(sums["allgather"], sums["server"]) << spec << codec << ranks;
        EXPECT_EQ(sums["allgather"], sums["sharded"]) << spec << codec << ranks;
      }
    }
  }
}

TEST(Exchange, GivesTheSameBitsByGatherAndByServerForIntegers) {
  for (const char* codec : {"auto:values=int8", "auto:values=int4", "auto:values=int2,block=16"}) {
    std::vector<std::uint64_t> sums;
    for (const char* exchange : {"allgather", "server"}) {
      const Plan plan = bodies::plan_of("topk:ratio=0.1", {exchange}, codec);
      run_on_threads(5, [&](Transport& transport) {
        const std::uint64_t sum = bodies::replicas_stay_equal(transport, plan, 15);
        if (transport.rank() == 0) sums.push_back(sum);
      });
    }
    EXPECT_EQ(sums[0], sums[1]) << codec;
  }
}

// The simulation finds the median by sorting. Another threshold would send other entries.
TEST(ThresholdOfAllRanks, IsTheMedianOfTheMeasuredOnes) {
  for (const ExchangeCase& setup :
       {ExchangeCase{"allgather"}, {"server"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
    for (const int ranks : kRanks) {
      Plan plan = bodies::plan_of("threshold:ratio=0.05,calibrate=7", setup);
      plan.layout = 2003;
      if (setup.downlink) plan.config.downlink = "threshold:ratio=0.04,calibrate=12";
      ASSERT_NO_FATAL_FAILURE(check_simulation(plan, ranks, 40, setup.downlink ? 2 : 1));
    }
  }
}

TEST(Exchange, WorksOnAnEmptyModel) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    plan.layout = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      for (std::uint64_t t = 0; t < 3; ++t) EXPECT_EQ(run.step(t).entries_total, 0U);
    });
  }
}

TEST(Exchange, GivesTheUpdateAlsoAsASparseVector) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const char* codec : {"auto", "auto:values=bf16"}) {
      SCOPED_TRACE(setup.name());
      Plan plan = bodies::plan_of("topk:ratio=0.1", setup, codec);
      run_on_threads(4, [&](Transport& transport) {
        Runner run(plan, transport);
        for (std::uint64_t t = 0; t < 5; ++t) {
          const StepStats& stats = run.step(t);
          const SparseVector& update = run.worker.update();
          ASSERT_TRUE(update.is_valid());
          EXPECT_EQ(stats.entries_total, update.size());
          Numbers dense(run.update.size());
          for (std::size_t i = 0; i < update.size(); ++i) dense[update.index(i)] = update.values[i];
          ASSERT_TRUE(same_bits(std::span<const float>(run.update), dense));
        }
      });
    }
  }
}

TEST_P(EveryExchangeCase, WorksInPlace) {
  const Plan plan = EveryExchangeCase::plan("auto:values=bf16");
  run_on_threads(3, [&](Transport& transport) {
    Runner apart(plan, transport);
    Runner in_place(plan, transport);
    for (std::uint64_t t = 0; t < 6; ++t) {
      apart.step(t);
      plan.fill(in_place.gradient, plan.seed, transport.rank(), t);
      in_place.worker.step(in_place.gradient);
      in_place.worker.write_update(in_place.gradient);
      ASSERT_TRUE(same_bits(std::span<const float>(apart.update), in_place.gradient)) << plan.name() << ", step " << t;
    }
  });
}

TEST(Exchange, TellsAllRanksTheFlagsOfAll) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      const auto mine = static_cast<std::uint8_t>(1U << transport.rank());
      run.worker.step(run.gradient, {.flags = mine});
      EXPECT_EQ(run.worker.stats().flags, 7);
      run.worker.step(run.gradient);
      EXPECT_EQ(run.worker.stats().flags, 0);
    });
  }
}

TEST(Exchange, TellsAllRanksTheMeanLossOfAll) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    plan.weights = {2, 1, 1};
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      const double mine = transport.rank() == 0 ? -3 : transport.rank() * 1e6;
      run.worker.step(run.gradient, {.loss = mine});
      EXPECT_EQ(run.worker.stats().loss, 0.5 * -3 + 0.25 * 1e6 + 0.25 * 2e6);
      run.worker.step(run.gradient);
      EXPECT_EQ(run.worker.stats().loss, 0);
    });
  }
}

// Many entries are sent in one step after another, so that the scores depend on what was observed.
TEST(RegTopKOverAnExchange, ObservesWhatTheWorkersReallyReceived) {
  for (const char* sparsifier :
       {"regtopk:ratio=0.3,mu=1", "regtopk:ratio=0.3,mu=0.5,form=b", "regtopk:ratio=0.3,mu=1,withheld=unknown"}) {
    for (const ExchangeCase& setup :
         {ExchangeCase{"allgather"}, {"server"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
      for (const char* codec : {"auto", "auto:values=bf16", "auto:values=int4"}) {
        Plan plan = bodies::plan_of(sparsifier, setup, codec);
        plan.config.downlink = setup.downlink ? "topk:ratio=0.2" : "";
        plan.layout = 333;
        ASSERT_NO_FATAL_FAILURE(check_simulation(plan, 3, kSlowBuild ? 10 : 40));
      }
    }
  }
}

// Otherwise the test above would show nothing.
TEST(RegTopKOverAnExchange, DependsOnWhatItObserves) {
  std::vector<std::uint64_t> sums;
  for (const char* sparsifier : {"regtopk:ratio=0.05,mu=4", "topk:ratio=0.05"}) {
    Plan plan = bodies::plan_of(sparsifier, {"sharded", true});
    plan.config.downlink = "topk:ratio=0.05";
    run_on_threads(3, [&](Transport& transport) {
      const std::uint64_t sum = bodies::replicas_stay_equal(transport, plan, 10);
      if (transport.rank() == 0) sums.push_back(sum);
    });
  }
  EXPECT_NE(sums[0], sums[1]);
}

// A pool splits, encodes and decodes the parts: enough entries for all its threads, and more frames than threads.
TEST(Sharded, GivesTheSameBitsWithAPool) {
  constexpr std::size_t kSize = 120001;
  for (const char* codec : {"auto", "auto:values=int4,block=64"}) {
    std::vector<Numbers> expected;
    for (const int threads : {1, 3}) {
      std::mutex mutex;
      run_on_threads(4, [&](Transport& transport) {
        Pool pool(threads);  // of this rank
        Worker worker({.sparsifier = "topk:ratio=0.3",
                       .exchange = "sharded",
                       .codec = codec,
                       .downlink = "topk:ratio=0.2",
                       .pool = threads == 1 ? nullptr : &pool},
                      kSize, transport);
        Numbers gradient(kSize);
        Numbers weights(kSize);
        for (std::uint64_t t = 0; t < 2; ++t) {
          bodies::fill_gradient(gradient, 7, transport.rank(), t);
          worker.step(gradient);
          worker.apply_update(weights, 1.0F);
        }
        const std::lock_guard lock(mutex);
        if (expected.empty()) expected.push_back(weights);
        EXPECT_TRUE(same_bits(expected.front(), weights)) << codec << ", " << threads << " threads";
      });
    }
  }
}

}  // namespace
}  // namespace sparsewire::exchange_test
