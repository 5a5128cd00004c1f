// What holds for all workers together, over every exchange: replicas agree, the update is the one of a simulation, and
// nothing is lost. Ranks are threads.
#include <gtest/gtest.h>

#include <mutex>

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

TEST(Exchange, AgreesWithASimulationWhereModelsAreSmallerThanRanks) {
  for (const char* sparsifier : {"topk:ratio=0.1", "topk:k=1", "randomk:ratio=0.5", "dense"}) {
    for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
      for (const std::uint64_t dim : {1U, 15U, 16U, 17U, 40U}) {
        Plan plan = bodies::plan_of(sparsifier, setup);
        plan.layout = dim;
        for (const int ranks : {2, 5}) ASSERT_NO_FATAL_FAILURE(check_simulation(plan, ranks, 5));
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
        for (const char* exchange : {"allgather", "server", "sharded"}) {
          const Plan plan = bodies::plan_of(spec, {exchange}, codec);
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

// Runs the plan and returns the mean of `count` over the steps after the calibration, on rank 0.
double mean_after(std::uint64_t calibration, const Plan& plan, int ranks, std::uint64_t StepStats::*count) {
  constexpr std::uint64_t kMeasured = 200;
  double mean = 0;
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < calibration; ++t) run.step(t);
    double sum = 0;
    for (std::uint64_t t = calibration; t < calibration + kMeasured; ++t) {
      sum += static_cast<double>(run.step(t).*count);
      bodies::require_same_everywhere(transport, std::span<const float>(run.update), run.at(t));
    }
    if (transport.rank() == 0) mean = sum / kMeasured;
  });
  return mean;
}

// Of 8 regions 6 hold no entries. If they voted, they would vote for 0, and all entries would be sent.
TEST(ThresholdOfAllRanks, SendsAsManyEntriesAsWantedWhereSomeRegionsAreEmpty) {
  Plan plan = bodies::plan_of("dense", {"sharded", true});
  plan.config.downlink = "threshold:ratio=0.1,calibrate=40";
  plan.layout = 30;
  const double mean = mean_after(40, plan, 8, &StepStats::entries_total);
  EXPECT_GT(mean, 3 / 2.0);
  EXPECT_LT(mean, 3 * 2.0);
}

// Of 17 entries one region holds 16 and another 1: the latter sends its entry in every step, and its small threshold
// must not count as much as that of the others.
TEST(ThresholdOfAllRanks, SendsAsManyEntriesAsWantedWhereARegionIsTiny) {
  Plan plan = bodies::plan_of("dense", {"sharded", true});
  plan.config.downlink = "threshold:ratio=0.1,calibrate=40";
  plan.layout = 17;
  plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
    bodies::fill_gradient(gradient, seed, rank, step);
    gradient[16] *= 0.001F;  // the region of one entry
  };
  const double mean = mean_after(40, plan, 8, &StepStats::entries_total);
  EXPECT_GT(mean, 3 / 2.0);
  EXPECT_LT(mean, 3 * 2.0);
}

// Regions that hold entries but receive only zeros have no threshold to vote for either.
TEST(ThresholdOfAllRanks, SendsAsManyEntriesAsWantedWhereSomeRegionsReceiveNothing) {
  Plan plan = bodies::plan_of("dense", {"sharded", true});
  plan.config.downlink = "threshold:ratio=0.1,calibrate=40";
  plan.layout = 128;
  plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
    bodies::fill_gradient(gradient, seed, rank, step);
    std::fill(gradient.begin() + 32, gradient.end(), 0.0F);  // the first two of eight blocks of 16
  };
  const double wanted = 4;  // round(0.1 * 16) for each of the two regions
  const double mean = mean_after(40, plan, 8, &StepStats::entries_total);
  EXPECT_GT(mean, wanted / 2);
  EXPECT_LT(mean, wanted * 2);
}

TEST(ThresholdOfAllRanks, SendsAsManyEntriesAsWantedWhereSomeRanksHaveOnlyZeros) {
  Plan plan = bodies::plan_of("threshold:ratio=0.05,calibrate=40", {"allgather"});
  plan.layout = 400;
  plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
    bodies::fill_gradient(gradient, seed, rank, step);
    if (rank != 0) std::fill(gradient.begin(), gradient.end(), 0.0F);
  };
  const double mean = mean_after(40, plan, 3, &StepStats::entries_sent);
  EXPECT_GT(mean, 20 / 2.0);
  EXPECT_LT(mean, 20 * 2.0);
}

// No rank has a vote, so the threshold stays 0, and every later entry is sent.
TEST(ThresholdOfAllRanks, IsZeroWhereNobodyMeasuredAnything) {
  Plan plan = bodies::plan_of("threshold:ratio=0.05,calibrate=4", {"allgather"});
  plan.layout = 101;
  plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
    bodies::fill_gradient(gradient, seed, rank, step);
    for (float& number : gradient) number = step < 4 ? 0 : number == 0 ? 1 : number;
  };
  EXPECT_EQ(mean_after(4, plan, 3, &StepStats::entries_sent), 101);
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

// The update is then the same as with sparsifier and exchange `dense`.
TEST(AutoExchange, SendsEverythingWhenItGoesDense) {
  for (const char* sparsifier : {"topk:ratio=0.9", "randomk:ratio=0.9", "rtopk:ratio=0.8,r=1.1", "regtopk:ratio=0.9"}) {
    for (const char* feedback : {"ef", "momentum:m=0.5", "ef:decay=0.5"}) {
      Plan plan = bodies::plan_of(sparsifier, {"auto"}, "auto:values=bf16");
      plan.config.feedback = feedback;
      plan.weights = {1, 1};
      run_on_threads(2, [&](Transport& transport) {
        Plan dense = plan;
        dense.config.exchange = "dense";
        dense.config.sparsifier = "dense";
        Runner run(plan, transport);
        Runner twin(dense, transport);
        for (std::uint64_t t = 0; t < 5; ++t) {
          EXPECT_TRUE(run.step(t).went_dense);
          twin.step(t);
          EXPECT_TRUE(same_bits(std::span<const float>(run.update), twin.update)) << plan.name() << ", step " << t;
        }
      });
    }
  }
}

// Whether the first step goes dense on three ranks.
bool goes_dense(const Plan& plan) {
  bool went_dense = false;
  run_on_threads(3, [&](Transport& transport) {
    Runner run(plan, transport);
    const char mine = run.step(0).went_dense ? 1 : 0;
    bodies::require_same_everywhere(transport, std::span<const char>(&mine, 1), run.at(0) + ": went_dense");
    if (transport.rank() == 0) went_dense = mine != 0;
  });
  return went_dense;
}

TEST(AutoExchange, SaysWhetherItWentDense) {
  EXPECT_TRUE(goes_dense(bodies::plan_of("dense", {"auto"})));
  EXPECT_TRUE(goes_dense(bodies::plan_of("topk:ratio=1", {"auto"})));
  EXPECT_FALSE(goes_dense(bodies::plan_of("topk:ratio=0.01", {"auto"})));
}

// How many entries travel is decided for each chunk, tensor and layer by itself, and at least one for each.
TEST(AutoExchange, CountsTheEntriesOfChunksLayersAndSmallTensors) {
  const auto tensors = [](std::size_t count, std::uint64_t size) {
    std::vector<TensorRange> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back({"t" + std::to_string(i), size, 0});
    return Layout(std::move(all));
  };
  struct Case {
    const char* sparsifier;
    Layout layout;
    Scope scope;
    bool expected;
  };
  for (const Case& one :
       std::vector<Case>{{"topk:k=64,chunk=64", 1000, Scope::model, true},
                         {"topk:k=1,chunk=64", 1000, Scope::model, false},
                         {"topk:k=64", 1000, Scope::model, false},
                         {"topk:ratio=0.01,chunk=2", 1000, Scope::model, true},  // one of two
                         {"topk:ratio=0.01,chunk=100", 1000, Scope::model, false},
                         {"topk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"topk:ratio=0.01,dense_below=100", tensors(10, 100), Scope::model, false},
                         {"randomk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"rtopk:ratio=0.01,r=2,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"regtopk:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:ratio=0.01,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:lambda=1e30,dense_below=200", tensors(10, 100), Scope::model, true},
                         {"threshold:ratio=0.01,dense_below=100", tensors(10, 100), Scope::model, false},
                         {"topk:ratio=0.001", tensors(500, 2), Scope::layer, true},  // one of two
                         {"topk:ratio=0.001", tensors(500, 2), Scope::model, false},
                         {"topk:ratio=0.5,warmup_from=0.001,warmup_steps=10", 1000, Scope::model, true},
                         {"topk:ratio=0.001,warmup_from=0.5,warmup_steps=10", 1000, Scope::model, false}}) {
    Plan plan = bodies::plan_of(one.sparsifier, {"auto"}, "auto:values=bf16");
    plan.layout = one.layout;
    plan.config.scope = one.scope;
    EXPECT_EQ(goes_dense(plan), one.expected) << one.sparsifier;
  }
}

// A frame is shorter with packed values, both of the uplink and of the answers.
TEST(AutoExchange, ExpectsPackedValues) {
  Plan plan = bodies::plan_of("topk:ratio=0.3", {"auto"}, "auto:values=bf16");
  plan.layout = 1000;
  EXPECT_FALSE(goes_dense(plan));  // the union is in packed f32
  plan.config.sparsifier = "topk:ratio=0.8";
  plan.config.downlink = "topk:ratio=0.8";
  plan.config.downlink_codec = "auto:values=f32";
  EXPECT_FALSE(goes_dense(plan));
  plan.config.downlink_codec = "auto:values=f32,pack=no";
  EXPECT_TRUE(goes_dense(plan));
  plan.config.downlink_codec = "auto:values=f32";
  plan.config.codec = "auto:values=bf16,pack=no";
  EXPECT_TRUE(goes_dense(plan));
}

TEST(AutoExchange, CountsTheEntriesOfADownlinkWithChunks) {
  Plan plan = bodies::plan_of("topk:ratio=1", {"auto"});
  plan.layout = 1000;
  plan.config.downlink = "topk:k=64,chunk=64";  // sends everything, so that full vectors are no longer
  EXPECT_TRUE(goes_dense(plan));
  plan.config.downlink = "topk:k=32,chunk=64";
  plan.config.sparsifier = "topk:ratio=0.1";
  EXPECT_FALSE(goes_dense(plan));
}

// Also if no option asks for it: a sparsifier may send everything.
TEST(Exchange, SaysThatItWentDenseWheneverAllEntriesTravel) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const char* sparsifier : {"dense", "threshold:lambda=0", "topk:ratio=1", "topk:k=64,chunk=64"}) {
      Plan plan = bodies::plan_of(sparsifier, setup);
      plan.layout = 200;
      plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
        bodies::fill_gradient(gradient, seed, rank, step);
        for (float& number : gradient) number = number == 0 ? 1 : number;
      };
      EXPECT_TRUE(goes_dense(plan)) << plan.name();
      plan.fill = [](std::span<float> gradient, std::uint64_t seed, int rank, std::uint64_t step) {
        bodies::fill_gradient(gradient, seed, rank, step);
        if (rank == 1) gradient[7] = 0;  // which `threshold` and `topk` do not send
      };
      const bool sends_zeros = setup.exchange == "dense" || plan.config.sparsifier == "dense" ||
                               (setup.exchange == "auto" && plan.config.sparsifier != "threshold:lambda=0");
      EXPECT_EQ(goes_dense(plan), sends_zeros) << plan.name();
    }
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    EXPECT_EQ(goes_dense(plan), setup.exchange == "dense") << plan.name();
    if (setup.downlink) {  // all entries go up, few come back
      plan.config.sparsifier = "dense";
      EXPECT_FALSE(goes_dense(plan)) << plan.name();
    }
    plan.layout = 0;  // a full vector is no longer than a frame
    EXPECT_EQ(goes_dense(plan), setup.exchange == "dense" || setup.exchange == "auto") << plan.name();
  }
}

// A constant threshold may send few entries in one step and many in the next.
TEST(AutoExchange, GoesDenseAndBackAgain) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    for (const char* downlink : {"", "topk:ratio=0.1", "dense"}) {
      for (const char* feedback : {"ef", "none", "momentum:m=0.5"}) {
        for (const int ranks : kSlowBuild ? std::vector{3} : std::vector{1, 3, 8}) {
          Plan plan = bodies::plan_of("threshold:lambda=12", {"auto"}, codec);
          plan.config.downlink = downlink;
          plan.config.feedback = feedback;
          plan.fill = bodies::fill_swinging_gradient;
          run_on_threads(ranks, [&](Transport& transport) {
            bodies::replicas_stay_equal(transport, plan, 30);
            if (plan.config.feedback == "ef" && plan.config.codec == "auto") {
              bodies::nothing_is_lost(transport, plan, 30);
            }
            Runner run(plan, transport);
            int dense = 0;
            for (std::uint64_t t = 0; t < 16; ++t) {
              if (!run.step(t).went_dense) continue;
              ++dense;
              for (const float number : run.worker.memory()) {  // rounding losses may stay
                bodies::require(number == 0 || plan.config.codec != "auto", run.at(t) + ": the memory was not flushed");
              }
            }
            const bool is_always_sparse = plan.config.downlink == "topk:ratio=0.1";  // full vectors are longer
            EXPECT_EQ(dense == 0, is_always_sparse) << plan.name();
            EXPECT_LT(dense, 16) << plan.name();
          });
        }
      }
    }
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
