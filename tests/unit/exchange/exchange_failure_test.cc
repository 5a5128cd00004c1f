// What happens on all ranks, as threads, when something is wrong on one: bad gradients, plans that differ, replicas
// that differ, ranks that are gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "exchange/tampering.h"
#include "unit/bits.h"
#include "unit/exchange_cases.h"

namespace sparsewire::exchange_failure_test {
namespace {

using bodies::BadEntry;
using bodies::Bytes;
using bodies::ExchangeCase;
using bodies::kRanks;
using bodies::Numbers;
using bodies::Plan;
using bodies::Runner;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<Bytes> saved_after(const Plan& plan, int ranks, std::uint64_t steps) {
  std::vector<Bytes> states(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
    states[static_cast<std::size_t>(transport.rank())] = run.worker.save();
  });
  return states;
}

TEST_P(EveryExchangeCase, FailsOnAllRanksIfOneGradientIsBad) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    Plan plan = EveryExchangeCase::plan(codec);
    if (is_all_reduce() && plan.config.codec != "auto") continue;
    plan.layout = 401;
    plan.fill = bodies::fill_exact_gradient;
    plan.weights = {2, 1, 1};  // exact shares, so that a step that was undone leaves no trace
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
TEST(BadGradientOnAllRanks, LeavesNoTraceWhereAutoGoesDense) {
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

// The memory of one worker holds numbers to which the next gradient cannot be added.
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

// Every worker is fine; only the memory of a server overflows, of one region where there are several.
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

// Shares are rounded, so those of some numbers of ranks add up to a bit more than 1: the mean of the largest number
// may overflow. Either all ranks throw, or the update is finite.
TEST(BadGradientOnAllRanks, IsTheOnlyAnswerToAMeanThatOverflows) {
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

// Rounding to bf16 may go up, and beyond the largest number.
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

// ---- Plans that differ ----

// The error each rank's worker is made with, or "".
std::vector<std::string> errors_of(int ranks, const std::function<void(Transport&)>& make) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    std::string& mine = errors[static_cast<std::size_t>(transport.rank())];
    try {
      make(transport);
    } catch (const UsageError& error) {
      mine = error.what();
    }
  });
  return errors;
}

TEST(WorkersWithDifferentPlans, AreRefusedOnAllRanks) {
  const std::vector<std::function<void(WorkerConfig&)>> changes = {
      [](WorkerConfig& config) { config.sparsifier = "topk:ratio=0.02"; },
      [](WorkerConfig& config) { config.feedback = "none"; },
      [](WorkerConfig& config) { config.exchange = "allgather"; },
      [](WorkerConfig& config) { config.exchange = "auto"; },
      [](WorkerConfig& config) { config.codec = "golomb"; },
      [](WorkerConfig& config) { config.downlink = "topk:ratio=0.01"; },
      [](WorkerConfig& config) { config.downlink_codec = "golomb"; },
      [](WorkerConfig& config) { config.scope = Scope::layer; },
      [](WorkerConfig& config) { config.seed = 4; },
      [](WorkerConfig& config) { config.check_every = 3; },
      [](WorkerConfig& config) { config.sparsifier = "no such thing"; },
  };
  for (std::size_t c = 0; c < changes.size(); ++c) {
    for (const int other : {0, 2}) {
      const auto errors = errors_of(3, [&](Transport& transport) {
        WorkerConfig config;
        if (transport.rank() == other) changes[c](config);
        const Worker worker(config, 1000, transport);
      });
      for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank")) << c;
    }
  }
}

// What `auto` stands for is not known where a spec is wrong; that is no reason to leave the others waiting.
TEST(WorkersWithDifferentPlans, AreRefusedOnAllRanksAlsoIfOneIsWrongUnderAuto) {
  for (const int other : {0, 2}) {
    std::vector<std::string> errors;
    EXPECT_NO_THROW(errors = errors_of(3, [&](Transport& transport) {
                      WorkerConfig config{.exchange = "auto"};
                      if (transport.rank() == other) config.codec = "auto:values=f99";
                      const Worker worker(config, 1000, transport);
                    }));
    for (const std::string& error : errors) EXPECT_NE(error, "");
  }
}

TEST(WorkersWithDifferentPlans, AreRefusedIfLayoutsDiffer) {
  for (const auto& [here, there] : {std::pair{Layout(10), Layout(11)},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"b", 6}, {"a", 5}})},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"a", 6}, {"b", 5}})},
                                    {Layout({{"a", 5}, {"b", 6}}), Layout({{"a", 5}, {"c", 6}})},
                                    {Layout(11), Layout({{"a", 5}, {"b", 6}})}}) {
    const auto errors = errors_of(4, [&, first = here, second = there](Transport& transport) {
      const Worker worker({}, transport.rank() == 3 ? second : first, transport);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("layout"));
  }
}

TEST(WorkersWithDifferentPlans, MayDifferInWeightAndPool) {
  const auto errors = errors_of(3, [](Transport& transport) {
    Pool pool(1 + transport.rank() % 2);
    WorkerConfig config;
    config.weight = transport.rank();
    config.pool = transport.rank() == 0 ? nullptr : &pool;
    const Worker worker(config, 1000, transport);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(WeightsOfWorkers, AreRefusedOnAllRanksUnlessTheyAddUpToSomething) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [weights, is_right] :
       std::vector<std::pair<std::vector<double>, bool>>{{{1, 1, 1}, true},
                                                         {{0, 0, 1}, true},
                                                         {{1e-300, 0, 1e300}, true},
                                                         {{1e-300, 1e-300, 0}, true},
                                                         {{0, 0, 0}, false},
                                                         {{1, -1, 1}, false},
                                                         {{1, 1, -1e-9}, false},
                                                         {{nan, 1, 1}, false},
                                                         {{1, 1, infinity}, false},
                                                         {{1e308, 1e308, 1e308}, false}}) {
    for (const ExchangeCase& setup : bodies::every_exchange_case()) {
      Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      plan.weights = weights;
      const auto errors = errors_of(3, [&](Transport& transport) {
        Runner run(plan, transport);
        run.step(0);
      });
      for (const std::string& error : errors) {
        EXPECT_EQ(error.empty(), is_right) << error << " for " << weights[0] << " " << weights[1] << " " << weights[2];
      }
    }
  }
}

// Its entries arrive with weight 0: they change nothing, and are no error either.
TEST(WeightsOfWorkers, MayBeZero) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const std::string& spec : example_specs()) {
      for (const char* codec : {"auto", "auto:values=bf16"}) {
        Plan plan = bodies::plan_of(spec, setup, codec);
        plan.weights = {1, 0, 2};
        run_on_threads(3, [&](Transport& transport) { bodies::replicas_stay_equal(transport, plan, 4); });
      }
    }
  }
}

TEST(DownlinksOfWorkers, AreRefusedWhereThereIsNoServer) {
  for (const char* exchange : {"dense", "allgather"}) {
    const auto errors = errors_of(2, [&](Transport& transport) {
      const Worker worker({.exchange = exchange, .downlink = "topk:ratio=0.01"}, 1000, transport);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("downlink"));
  }
}

// A fault in what only servers use, or only `auto` when it stays sparse, is a fault for all ranks in every case.
TEST(WrongPlans, AreRefusedOnAllRanks) {
  const std::vector<std::pair<WorkerConfig, std::string>> wrong = {
      {{.exchange = "server", .downlink = "topk:ratio=7"}, "ratio=7"},
      {{.exchange = "server", .downlink = "no_such"}, "no_such"},
      {{.exchange = "server", .downlink = "topk:ratio=0.1", .downlink_codec = "zip"}, "zip"},
      {{.exchange = "server", .downlink = "topk:ratio=0.1,dense_below=10"}, "dense_below"},
      {{.exchange = "sharded", .downlink = "topk:ratio=0.1,dense_below=10"}, "dense_below"},
      {{.exchange = "sharded", .downlink_codec = "golomb"}, "downlink_codec"},
      {{.exchange = "auto:x=1"}, "x"},
      {{.sparsifier = "topk:ratio=1,colour=red", .exchange = "auto"}, "colour"},
      {{.sparsifier = "dense", .exchange = "auto", .downlink = "no_such"}, "no_such"},
      {{.sparsifier = "dense", .exchange = "auto", .codec = "zip"}, "zip"},
  };
  for (const auto& [config, word] : wrong) {
    const auto errors =
        errors_of(3, [&, &plan = config](Transport& transport) { const Worker worker(plan, 1000, transport); });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(word));
  }
}

// ---- Ranks that are at different places ----

TEST(WorkersOutOfStep, AreNoticedByAllRanks) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const bool same_plan : {true, false}) {
      for (const int odd : {0, 1, 2}) {
        SCOPED_TRACE(setup.name() + ", rank " + std::to_string(odd));
        const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
        Plan other = plan;
        if (!same_plan) other.layout = 77;
        std::atomic<int> told = 0;
        run_on_threads(3, [&](Transport& transport) {
          Runner one(plan, transport);
          Runner two(other, transport);
          one.step(0), two.step(0);
          Runner& next = transport.rank() == odd ? two : one;
          try {
            next.step(1);
          } catch (const TransportError& error) {
            EXPECT_THAT(error.what(), HasSubstr("is not in the same step as rank 0"));
            EXPECT_EQ(error.rank(), odd == 0 ? 1 : odd);  // all compare with rank 0
            ++told;
          }
          EXPECT_THROW(next.step(1), UsageError);
          EXPECT_THROW(next.worker.save(), UsageError);
        });
        EXPECT_EQ(told, 3);
      }
    }
  }
}

TEST(WorkersOutOfStep, AreNoticedAlsoIfOneIsAStepBehind) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    const std::vector<Bytes> early = saved_after(plan, 3, 1);
    const std::vector<Bytes> late = saved_after(plan, 3, 2);
    std::atomic<int> told = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      run.worker.load(transport.rank() == 2 ? early : late);
      try {
        run.step(2);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 2);
        ++told;
      }
    });
    EXPECT_EQ(told, 3);
  }
}

// ---- Frames that cannot be read ----

// Cuts, in one step, what comes from rank 1 in the first call of it.
class CuttingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  std::size_t cut = 0;  // bytes, from the end

  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::send_receive(out, in);
    for (const Incoming& message : in) {
      if (message.rank != 1) continue;
      const auto less = static_cast<std::ptrdiff_t>(std::min(cut, message.bytes->size()));
      message.bytes->erase(message.bytes->end() - less, message.bytes->end());
    }
    cut = 0;
  }
};

// Of rank 0 alone: where it serves, it has to tell the others.
TEST(AnUnreadableFrame, IsNamedByAllWhereServersReadIt) {
  for (const ExchangeCase& setup : {ExchangeCase{"server"}, {"server", true}}) {
    for (const std::size_t cut : {1U, 30U, 1000000U}) {
      SCOPED_TRACE(setup.name() + ", " + std::to_string(cut) + " bytes");
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> told = 0;
      run_on_threads(3, [&](Transport& transport) {
        CuttingTransport cutting(transport);
        Runner run(plan, cutting);
        run.step(0);
        if (transport.rank() == 0) cutting.cut = cut;
        try {
          run.step(1);
        } catch (const TransportError& error) {
          EXPECT_EQ(error.rank(), 1);
          EXPECT_THAT(error.what(), HasSubstr("rank 1"));
          ++told;
        }
        EXPECT_THROW(run.step(2), UsageError);
      });
      EXPECT_EQ(told, 3);
    }
  }
}

TEST(AnUnreadableFrame, EndsTheWorkerThatGotIt) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded"}, {"sharded", true}, {"dense"}}) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> told = 0;
    const auto body = [&](Transport& transport) {
      CuttingTransport cutting(transport);
      Runner run(plan, cutting);
      run.step(0);
      if (transport.rank() == 2) cutting.cut = 3;
      try {
        for (std::uint64_t t = 1; t < 4; ++t) run.step(t);
      } catch (const TransportError&) {
        EXPECT_THROW(run.step(4), UsageError);
        ++told;
        throw;
      }
    };
    EXPECT_THROW(run_on_threads(3, body), TransportError);
    EXPECT_EQ(told, 3);
  }
}

// ---- Replicas that differ ----

struct Seen {
  std::string text;         // of ReplicasDiffer
  std::uint64_t steps = 0;  // done when it came
};

// One bit of what `victim` receives in step `tampered` (from 1) is another; up to 12 steps.
std::vector<Seen> run_tampered(const Plan& plan, int ranks, int victim, std::uint64_t tampered) {
  std::vector<Seen> all(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    TamperingTransport tampering(transport);
    tampering.has_servers = plan.config.exchange != "allgather";
    Runner run(plan, tampering);
    Seen& seen = all[static_cast<std::size_t>(transport.rank())];
    try {
      for (std::uint64_t t = 0; t < 12; ++t) {
        tampering.begin_step(transport.rank() == victim && t + 1 == tampered);
        seen.steps = t + 1;
        run.step(t);
      }
    } catch (const ReplicasDiffer& error) {
      seen.text = error.what();
    }
    EXPECT_EQ(tampering.flipped(), transport.rank() == victim ? 1 : 0) << plan.name();
  });
  return all;
}

TEST(ReplicasThatDiffer, AreFoundAtTheNextCheckOnAllRanks) {
  for (const ExchangeCase& setup :
       {ExchangeCase{"allgather"}, {"server"}, {"server", true}, {"sharded"}, {"sharded", true}}) {
    for (const int victim : {1, 2}) {
      for (const std::uint64_t tampered : {4U, 6U, 8U}) {
        Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
        plan.config.check_every = 4;
        const std::uint64_t found = (tampered + 3) / 4 * 4;
        for (const Seen& seen : run_tampered(plan, 4, victim, tampered)) {
          EXPECT_THAT(seen.text, HasSubstr("rank " + std::to_string(victim)))
              << setup.name() << ", a bit in step " << tampered;
          EXPECT_EQ(seen.steps, found) << setup.name() << ", a bit in step " << tampered;
        }
      }
    }
  }
}

TEST(ReplicasThatDiffer, AreNeverLookedForWithoutChecks) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    plan.config.check_every = 0;
    for (const Seen& seen : run_tampered(plan, 3, 1, 5)) {
      EXPECT_EQ(seen.text, "");
      EXPECT_EQ(seen.steps, 12U);
    }
  }
}

// ---- Ranks that are gone ----

TEST(ARankThatThrowsBetweenSteps, IsNamedToAllOthersOfItsThreads) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const int lost : {0, 1, 3}) {
      SCOPED_TRACE(setup.name() + " without rank " + std::to_string(lost));
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> told = 0;
      const auto body = [&](Transport& transport) {
        Runner run(plan, transport);
        try {
          for (std::uint64_t t = 0; t < 10; ++t) {
            if (t == 3 && transport.rank() == lost) throw std::runtime_error("the disk is full");
            run.step(t);
          }
        } catch (const TransportError& error) {
          EXPECT_EQ(error.rank(), lost);
          EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(lost)));
          EXPECT_LE(run.worker.stats().step, 3U);
          ++told;
          throw;
        }
      };
      EXPECT_THROW(run_on_threads(4, body), std::runtime_error);
      EXPECT_EQ(told, 3);
    }
  }
}

TEST(ARankThatEndsEarly, IsNamedToAllOthers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> told = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      try {
        for (std::uint64_t t = 0; t < (transport.rank() == 1 ? 3U : 5U); ++t) run.step(t);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 1) << setup.name();
        ++told;
      }
    });
    EXPECT_EQ(told, 2) << setup.name();
  }
}

}  // namespace
}  // namespace sparsewire::exchange_failure_test
