// What all ranks do when something is wrong on one: bad gradients, options that differ, replicas that differ, messages
// that cannot be read, calls that fail, ranks that are lost. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <mutex>

#include "exchange/tampering.h"
#include "unit/bits.h"
#include "unit/exchange_cases.h"
#include "worker/options.h"

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

// ---- Options that differ ----

// The message of the UsageError that each rank throws, or "".
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

// Another value of the option.
void change(std::string& value) { value += "x"; }
void change(Scope& value) { value = value == Scope::model ? Scope::layer : Scope::model; }
void change(double& value) { value += 1; }
void change(std::uint64_t& value) { value += 1; }
void change(Pool*& value) {
  static Pool pool(1);
  value = &pool;
}

struct ConvertsToAnything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// The number of members of an aggregate: with one initialiser more it does not compile.
template <class Aggregate, class... Initialisers>
constexpr std::size_t number_of_members() {
  if constexpr (requires { Aggregate{Initialisers{}..., ConvertsToAnything{}}; }) {
    return number_of_members<Aggregate, Initialisers..., ConvertsToAnything>();
  } else {
    return sizeof...(Initialisers);
  }
}

// One rank has another value of one option. Takes the options from the list of all options.
TEST(WorkersWithDifferentOptions, AreRefusedOnAllRanksUnlessTheyMayDiffer) {
  std::vector<std::pair<std::string, AcrossRanks>> options;
  const WorkerConfig defaults;
  for_each_option(defaults, [&](const char* name, const auto&, AcrossRanks across_ranks) {
    options.emplace_back(name, across_ranks);
  });
  ASSERT_EQ(options.size(), number_of_members<WorkerConfig>()) << "an option is missing in worker/options.h";
  for (const auto& [changed, across_ranks] : options) {
    for (const int other : {0, 2}) {
      const auto errors = errors_of(3, [&, &name = changed](Transport& transport) {
        WorkerConfig config;
        for_each_option(config, [&](const char* option, auto& value, AcrossRanks) {
          if (option == name && transport.rank() == other) change(value);
        });
        const Worker worker(config, 1000, transport);
      });
      const std::string expected = across_ranks == AcrossRanks::must_be_equal ? "rank 0 has " + changed : "";
      for (const std::string& error : errors) {
        EXPECT_EQ(error.empty(), expected.empty()) << changed << ": " << error;
        EXPECT_THAT(error, HasSubstr(expected)) << changed;
      }
    }
  }
}

// A rank with a wrong spec cannot tell what `auto` stands for. It must not leave the others waiting for it.
TEST(WorkersWithDifferentOptions, AreRefusedOnAllRanksAlsoIfOneIsWrongUnderAuto) {
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

TEST(WorkersWithDifferentOptions, AreRefusedIfLayoutsDiffer) {
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

TEST(WeightsOfWorkers, AreRefusedOnAllRanksUnlessTheirSumIsPositiveAndFinite) {
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

// Entries of weight 0 change nothing, and are not an error.
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

// Chunks are cut off at the end of a region, on all ranks.
TEST(DownlinksOfWorkers, MayHaveChunksThatAreLargerThanARegion) {
  for (const char* exchange : {"server", "sharded"}) {
    Plan plan = bodies::plan_of("topk:ratio=0.1", {exchange, true});
    plan.config.downlink = "topk:k=20,chunk=64";
    plan.layout = 100;  // no region of 8 has more than 16 entries, and one has none
    run_on_threads(8, [&](Transport& transport) { bodies::replicas_stay_equal(transport, plan, 4); });
  }
}

// Also if only servers use the wrong option, or only an `auto` that does not go dense.
TEST(WrongOptions, AreRefusedOnAllRanks) {
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
  for (const auto& [config, named] : wrong) {
    const auto errors =
        errors_of(3, [&, &plan = config](Transport& transport) { const Worker worker(plan, 1000, transport); });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(named));
  }
}

// ---- Ranks that are not in the same step ----

TEST(WorkersOutOfStep, AreNoticedByAllRanks) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const bool same_plan : {true, false}) {
      for (const int odd : {0, 1, 2}) {
        SCOPED_TRACE(setup.name() + ", rank " + std::to_string(odd));
        const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
        Plan other = plan;
        if (!same_plan) other.layout = 77;
        std::atomic<int> thrown = 0;
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
            ++thrown;
          }
          EXPECT_THROW(next.step(1), UsageError);
          EXPECT_THROW(next.worker.save(), UsageError);
        });
        EXPECT_EQ(thrown, 3);
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
    std::atomic<int> thrown = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      run.worker.load(transport.rank() == 2 ? early : late);
      try {
        run.step(2);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 2);
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, 3);
  }
}

// ---- Frames that cannot be read ----

// Cuts `cut` bytes off the next message that comes from rank 1.
class CuttingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  std::size_t cut = 0;  // bytes, from the end

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    WrappedTransport::do_send_receive(out, in);
    for (const Incoming& message : in) {
      if (message.rank != 1) continue;
      const auto less = static_cast<std::ptrdiff_t>(std::min(cut, message.bytes->size()));
      message.bytes->erase(message.bytes->end() - less, message.bytes->end());
    }
    cut = 0;
  }
};

// Only rank 0 gets an unreadable message. It is the server, so it has to tell the other ranks.
TEST(AnUnreadableFrame, IsReportedByAllRanksIfTheServerGotIt) {
  for (const ExchangeCase& setup : {ExchangeCase{"server"}, {"server", true}}) {
    for (const std::size_t cut : {1U, 30U, 1000000U}) {
      SCOPED_TRACE(setup.name() + ", " + std::to_string(cut) + " bytes");
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> thrown = 0;
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
          ++thrown;
        }
        EXPECT_THROW(run.step(2), UsageError);
      });
      EXPECT_EQ(thrown, 3);
    }
  }
}

TEST(AnUnreadableFrame, MakesTheWorkerThatGotItUnusable) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"sharded"}, {"sharded", true}, {"dense"}}) {
    SCOPED_TRACE(setup.name());
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> thrown = 0;
    const auto body = [&](Transport& transport) {
      CuttingTransport cutting(transport);
      Runner run(plan, cutting);
      run.step(0);
      if (transport.rank() == 2) cutting.cut = 3;
      try {
        for (std::uint64_t t = 1; t < 4; ++t) run.step(t);
      } catch (const TransportError&) {
        EXPECT_THROW(run.step(4), UsageError);
        ++thrown;
        throw;
      }
    };
    EXPECT_THROW(run_on_threads(3, body), TransportError);
    EXPECT_EQ(thrown, 3);
  }
}

// ---- Replicas that differ ----

// What one rank got.
struct Seen {
  std::string text;         // of ReplicasDiffer, or ""
  std::uint64_t steps = 0;  // done by then
};

// Up to 12 steps. In the step number `tampered` (from 1) one bit of a message to `victim` is flipped.
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

TEST(ReplicasThatDiffer, AreNotComparedIfCheckEveryIsZero) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    plan.config.check_every = 0;
    for (const Seen& seen : run_tampered(plan, 3, 1, 5)) {
      EXPECT_EQ(seen.text, "");
      EXPECT_EQ(seen.steps, 12U);
    }
  }
}

// ---- Calls that fail ----

// Throws instead of making the call number `failing` (from 0).
class FailingTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  int calls = 0;
  int failing = -1;

  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    count();
    WrappedTransport::do_send_receive(out, in);
  }
  void do_all_reduce_sum(WritableNumbers numbers) override {
    count();
    WrappedTransport::do_all_reduce_sum(numbers);
  }

 private:
  void count() {
    if (calls++ == failing) throw TransportError("the link is down", 0);
  }
};

// The step is the last of the calibration, so that thresholds are voted on, and replicas are compared in every step: a
// call for each of these, after those of the exchange.
TEST(AWorkerWhoseTransportFailed, IsNotUsedAgainWhicheverCallFailed) {
  for (const char* sparsifier : {"topk:ratio=0.1", "threshold:ratio=0.1,calibrate=2"}) {
    for (const ExchangeCase& setup : bodies::every_exchange_case()) {
      Plan plan = bodies::plan_of(sparsifier, setup);
      plan.config.check_every = 1;
      int calls = 1;  // in a step
      for (int failing = 0; failing < calls; ++failing) {
        SCOPED_TRACE(plan.name() + ", call " + std::to_string(failing));
        std::barrier all(3);
        run_on_threads(3, [&](Transport& transport) {
          FailingTransport link(transport);
          Runner run(plan, link);
          run.step(0);
          if (failing == 0) {  // count the calls of a step
            Runner twin(plan, link);
            twin.step(0);
            link.calls = 0;
            twin.step(1);
            if (transport.rank() == 0) calls = link.calls;
          }
          all.arrive_and_wait();  // one that fails tells the others, who may still be in the steps above
          link.calls = 0;
          link.failing = failing;
          EXPECT_THROW(run.step(1), TransportError);
          EXPECT_THROW(run.worker.save(), UsageError);
          EXPECT_THROW(run.step(2), UsageError);
        });
      }
      const bool votes = std::string(sparsifier).starts_with("threshold");
      const bool server_votes = votes && setup.downlink && setup.exchange == "sharded";
      EXPECT_GE(calls, 2 + (votes ? 1 : 0) + (server_votes ? 1 : 0)) << plan.name();
    }
  }
}

// Nothing is missing from a step after which replicas were found to differ.
TEST(ReplicasThatDiffer, DoNotKeepAWorkerFromBeingSaved) {
  Plan plan = bodies::plan_of("topk:ratio=0.1", {"allgather"});
  plan.config.check_every = 1;
  run_on_threads(3, [&](Transport& transport) {
    TamperingTransport tampering(transport);
    Runner run(plan, tampering);
    tampering.begin_step(transport.rank() == 1);
    EXPECT_THROW(run.step(0), ReplicasDiffer);
    EXPECT_NO_THROW(run.worker.save());
  });
}

// ---- Ranks that are lost ----

TEST(ARankThatThrowsBetweenSteps, IsNamedInTheErrorsOfAllOthers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const int lost : {0, 1, 3}) {
      SCOPED_TRACE(setup.name() + " without rank " + std::to_string(lost));
      const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
      std::atomic<int> thrown = 0;
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
          ++thrown;
          throw;
        }
      };
      EXPECT_THROW(run_on_threads(4, body), std::runtime_error);
      EXPECT_EQ(thrown, 3);
    }
  }
}

TEST(ARankThatEndsEarly, IsNamedInTheErrorsOfAllOthers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup);
    std::atomic<int> thrown = 0;
    run_on_threads(3, [&](Transport& transport) {
      Runner run(plan, transport);
      try {
        for (std::uint64_t t = 0; t < (transport.rank() == 1 ? 3U : 5U); ++t) run.step(t);
      } catch (const TransportError& error) {
        EXPECT_EQ(error.rank(), 1) << setup.name();
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, 2) << setup.name();
  }
}

}  // namespace
}  // namespace sparsewire::exchange_failure_test
