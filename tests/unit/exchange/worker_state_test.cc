// Workers that continue from saved states, with the same number of workers or another. Ranks are threads.
#include <gtest/gtest.h>

#include <numeric>

#include "unit/bits.h"
#include "unit/exchange_cases.h"
#include "unit/saved_run.h"

namespace sparsewire::worker_state_test {
namespace {

using bodies::Bytes;
using bodies::ExchangeCase;
using bodies::kRanks;
using bodies::kSlowBuild;
using bodies::Numbers;
using bodies::Plan;
using bodies::Runner;

// Also if it was saved while a threshold is still being measured.
TEST_P(EveryExchangeCase, ContinuesBitForBitWithAsManyWorkers) {
  for (const char* feedback : {"ef", "none", "momentum:m=0.9"}) {
    for (const int ranks : {1, 3}) {
      for (const std::uint64_t half : {5U, kSlowBuild ? 9U : 110U}) {
        if (half != 5 && std::string(feedback) != "ef" && !long_tests()) continue;
        Plan plan = EveryExchangeCase::plan("auto:values=bf16");
        plan.config.feedback = feedback;
        plan.layout = 301;
        const SavedRun saved = run_and_save(plan, ranks, half);
        run_on_threads(ranks, [&](Transport& transport) {
          Runner whole(plan, transport);
          Runner second(plan, transport);
          for (std::uint64_t t = 0; t < half; ++t) whole.step(t);
          if (half == 5) second.step(99);  // load() replaces whatever it did before
          second.worker.load(saved.states);
          EXPECT_EQ(second.worker.save(), saved.states[static_cast<std::size_t>(transport.rank())]);
          for (std::uint64_t t = half; t < half + 12; ++t) {
            EXPECT_EQ(whole.step(t).step, second.step(t).step);
            ASSERT_TRUE(same_bits(std::span<const float>(whole.update), second.update)) << plan.name() << " " << t;
          }
          EXPECT_EQ(whole.worker.stats().total_error, second.worker.stats().total_error);
          EXPECT_EQ(whole.worker.save(), second.worker.save());
        });
      }
    }
  }
}

// Where nothing has changed, a rank needs its own state only.
TEST(SavedWorkers, ContinueFromTheirOwnStateAlone) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = bodies::plan_of("topk:ratio=0.05", setup, "auto:values=bf16");
    const SavedRun saved = run_and_save(plan, 3, 5);
    run_on_threads(3, [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      Runner all(plan, transport);
      Runner own(plan, transport);
      all.worker.load(saved.states);
      own.worker.load({&saved.states[rank], 1});
      EXPECT_EQ(own.worker.save(), saved.states[rank]);
      for (std::uint64_t t = 5; t < 9; ++t) {
        EXPECT_EQ(all.step(t).step, own.step(t).step);
        ASSERT_TRUE(same_bits(std::span<const float>(all.update), own.update)) << plan.name() << " " << t;
      }
      const std::vector<std::byte> before = own.worker.save();
      EXPECT_THROW(own.worker.load({&saved.states[(rank + 1) % 3], 1}), UsageError) << "of another rank";
      Plan other = plan;
      other.layout = 1002;
      Runner larger(other, transport);
      EXPECT_THROW(larger.worker.load({&saved.states[rank], 1}), UsageError);
      other = plan;
      other.weights = {1, 1, 1};
      Runner equal(other, transport);
      EXPECT_THROW(equal.worker.load({&saved.states[rank], 1}), UsageError) << "other weights";
      other = plan;
      other.config.exchange = setup.exchange == "allgather" ? "server" : "allgather";
      other.config.downlink = "";
      Runner elsewhere(other, transport);
      EXPECT_THROW(elsewhere.worker.load({&saved.states[rank], 1}), UsageError) << "another exchange";
      EXPECT_EQ(own.worker.save(), before);
    });
  }
}

// Other workers load the states: they owe the same, the steps continue, and replicas agree.
void check_taken_over(const SavedRun& saved, const Plan& plan, int ranks, std::uint64_t steps) {
  run_on_threads(ranks, [&](Transport& transport) {
    Runner run(plan, transport);
    run.worker.load(saved.states);
    const std::vector<double> owed = bodies::owed(transport, plan, run.worker);
    for (std::size_t i = 0; i < owed.size(); ++i) {
      ASSERT_NEAR(owed[i], saved.owed[i], 0x1p-22 * saved.size[i] + 1e-30) << i << " " << run.at(steps);
    }
    for (std::uint64_t t = steps; t < steps + 4; ++t) {
      bodies::require_equal(t + 1, run.step(t).step, run.at(t) + ": steps done");
    }
    bodies::require_same_everywhere(transport, std::span<const float>(run.weights), run.at(steps));
  });
}

TEST_P(EveryExchangeCase, OwesTheSameWithAnyOtherNumberOfWorkers) {
  const std::vector<int> all(kRanks.begin(), kRanks.end());
  const std::vector<int> few = kSlowBuild ? std::vector{1, 3} : std::vector{1, 3, 8};
  const std::vector<int> numbers = effort(few, kSlowBuild ? std::vector{1, 3, 8} : all);
  for (const char* feedback : {"ef", "momentum:m=0.9"}) {
    for (const int before : numbers) {
      Plan plan = EveryExchangeCase::plan();
      plan.layout = 301;
      plan.config.feedback = feedback;
      const std::uint64_t steps = 6;
      const SavedRun saved = run_and_save(plan, before, steps);
      for (const int after : numbers) {
        Plan next = plan;
        if (after != before) next.weights = {0.5, 4, 1, 1, 2, 0, 1};
        ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, next, after, steps)) << before << " to " << after;
      }
    }
  }
}

TEST(SavedWorkers, OweTheSameOverAnotherExchange) {
  const std::vector<ExchangeCase> cases = bodies::every_exchange_case();
  std::size_t turn = 0;  // usually a third of them: every pair of exchanges is there, with other numbers of workers
  for (const char* spec : {"topk:ratio=0.05", "threshold:ratio=0.05,calibrate=3", "randomk:ratio=0.1"}) {
    for (const ExchangeCase& from : cases) {
      for (const ExchangeCase& to : cases) {
        for (const auto& [before, after] : {std::pair{3, 3}, {3, 5}, {5, 2}, {1, 3}, {3, 1}}) {
          if (turn++ % 3 != 0 && !long_tests()) continue;
          if (kSlowBuild && before == after) continue;  // the others show it too
          SCOPED_TRACE(std::string(spec) + " " + from.name() + " to " + to.name());
          Plan plan = bodies::plan_of(spec, from);
          plan.layout = 301;
          const SavedRun saved = run_and_save(plan, before, 5);
          Plan next = bodies::plan_of(spec, to);
          next.layout = 301;
          ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, next, after, 5));
        }
      }
    }
  }
}

TEST(SavedWorkers, OweTheSameWithAnotherDownlink) {
  Plan plan = bodies::plan_of("topk:ratio=0.05", {"sharded", true});
  plan.layout = 301;
  const SavedRun saved = run_and_save(plan, 3, 5);
  for (const char* downlink : {"randomk:ratio=0.1", "threshold:ratio=0.1,calibrate=2", "dense", "topk:k=7"}) {
    for (const char* exchange : {"server", "sharded"}) {
      for (const int after : {1, 3, 8}) {
        Plan next = plan;
        next.config.exchange = exchange;
        next.config.downlink = downlink;
        ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, next, after, 5)) << downlink << exchange << after;
      }
    }
  }
}

TEST(SavedWorkers, OweTheSameWithOtherWeights) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    plan.layout = 301;
    const SavedRun saved = run_and_save(plan, 3, 5);
    Plan next = plan;
    next.weights = {1, 8, 1};
    ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, next, 3, 5)) << setup.name();
  }
}

// The total error of all workers and servers, as worker.h defines it, in the states that these ranks load.
double loaded_total_error(const Plan& plan, int ranks, const SavedRun& saved, std::uint64_t step) {
  const std::vector<float> shares = plan.shares(ranks);
  std::vector<double> errors(shares.size());
  run_on_threads(ranks, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    Runner run(plan, transport);
    run.worker.load(saved.states);
    const StepStats& stats = run.step(step);
    errors[rank] = static_cast<double>(shares[rank]) * (stats.total_error - stats.memory_norm2) + stats.server_error -
                   stats.server_memory_norm2;
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

TEST(SavedWorkers, KeepTheTotalErrorWithAnyOtherNumberOfWorkers) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    for (const char* server_feedback : {"ef", "none"}) {
      Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
      plan.layout = 301;
      if (!plan.config.downlink.empty()) plan.config.downlink_feedback = server_feedback;
      const SavedRun saved = run_and_save(plan, 4, 6);
      const double before = loaded_total_error(plan, 4, saved, 6);
      ASSERT_GT(before, 0);
      for (const int after : {1, 2, 3, 5}) {
        EXPECT_NEAR(loaded_total_error(plan, after, saved, 6) / before, 1, 1e-6)
            << setup.name() << " " << server_feedback << ", " << after << " workers";
      }
    }
  }
}

// The state also says whether `auto` goes dense in the next step.
TEST(SavedWorkers, ContinueBitForBitWhereAutoGoesDenseAndBack) {
  for (const char* downlink : {"", "dense"}) {
    for (std::uint64_t half = 1; half < 6; ++half) {
      Plan plan = bodies::plan_of("threshold:lambda=12", {"auto"});
      plan.config.downlink = downlink;
      plan.layout = 301;
      plan.fill = bodies::fill_swinging_gradient;
      const SavedRun saved = run_and_save(plan, 3, half);
      run_on_threads(3, [&](Transport& transport) {
        Runner whole(plan, transport);
        Runner second(plan, transport);
        for (std::uint64_t t = 0; t < half; ++t) whole.step(t);
        second.worker.load(saved.states);
        for (std::uint64_t t = half; t < half + 8; ++t) {
          whole.step(t), second.step(t);
          ASSERT_TRUE(same_bits(std::span<const float>(whole.update), second.update)) << plan.name() << " " << t;
        }
      });
      for (const int after : {1, 2, 5}) ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, plan, after, half));
    }
  }
}

// Workers that load the states do not measure lambda again.
TEST(SavedWorkers, KeepTheMeasuredThreshold) {
  for (const ExchangeCase& setup : {ExchangeCase{"allgather"}, {"server", true}, {"sharded", true}}) {
    Plan plan = bodies::plan_of("threshold:ratio=0.05,calibrate=4", setup);
    plan.layout = 2003;
    const SavedRun saved = run_and_save(plan, 3, 30);
    run_on_threads(5, [&](Transport& transport) {
      Runner run(plan, transport);
      run.worker.load(saved.states);
      Runner fresh(plan, transport);
      for (std::uint64_t t = 30; t < 34; ++t) {
        const std::uint64_t kept = run.step(t).entries_sent;
        const std::uint64_t calibrating = fresh.step(t).entries_sent;
        EXPECT_EQ(calibrating, 100U);  // Top-k runs while lambda is measured
        EXPECT_TRUE(t == 30 || kept != 100) << setup.name();
        if (setup.downlink) {  // the servers keep theirs too
          EXPECT_TRUE(t == 30 || run.worker.stats().entries_total != fresh.worker.stats().entries_total)
              << setup.name();
        }
      }
    });
  }
}

TEST(SavedWorkers, AreFoundByTheNamesOfTheirTensors) {
  Plan plan = bodies::plan_of("topk:ratio=0.05", {"allgather"});
  plan.layout = Layout({{"a", 100}, {"b", 200}, {"c", 33}});
  const SavedRun saved = run_and_save(plan, 3, 5);
  Plan next = plan;
  next.layout = Layout({{"c", 33}, {"a", 100}, {"b", 200}});
  std::vector<double> expected(saved.owed.end() - 33, saved.owed.end());
  expected.insert(expected.end(), saved.owed.begin(), saved.owed.end() - 33);
  for (const int after : {2, 3}) {
    run_on_threads(after, [&](Transport& transport) {
      Runner run(next, transport);
      run.worker.load(saved.states);
      const std::vector<double> owed = bodies::owed(transport, next, run.worker);
      for (std::size_t i = 0; i < owed.size(); ++i) ASSERT_NEAR(owed[i], expected[i], 1e-5) << i << " " << after;
    });
  }
}

// With servers, the entries of the regions are found by tensor name too, or the states are refused.
TEST(SavedWorkers, OweTheSameOrAreRefusedInAnotherOrderOfTensorsWithADownlink) {
  for (const char* exchange : {"server", "sharded"}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", {exchange, true});
    plan.layout = Layout({{"a", 100}, {"b", 200}, {"c", 33}});
    const SavedRun saved = run_and_save(plan, 3, 5);
    Plan next = plan;
    next.layout = Layout({{"c", 33}, {"a", 100}, {"b", 200}});
    std::vector<double> expected(saved.owed.end() - 33, saved.owed.end());
    expected.insert(expected.end(), saved.owed.begin(), saved.owed.end() - 33);
    for (const int after : {2, 3}) {
      run_on_threads(after, [&](Transport& transport) {
        Runner run(next, transport);
        try {
          run.worker.load(saved.states);
        } catch (const UsageError&) {
          return;
        }
        const std::vector<double> owed = bodies::owed(transport, next, run.worker);
        for (std::size_t i = 0; i < owed.size(); ++i) {
          ASSERT_NEAR(owed[i], expected[i], 1e-5) << i << " " << exchange << after;
        }
      });
    }
  }
}

// What was owed to a tensor that no longer exists is dropped. For the other tensors nothing changes, neither in the
// workers' memories nor in the servers'.
TEST(SavedWorkers, OweTheSameForSomeOfTheirTensorsWithADownlink) {
  for (const char* exchange : {"server", "sharded"}) {
    Plan plan = bodies::plan_of("topk:ratio=0.05", {exchange, true});
    plan.layout = Layout({{"a", 100}, {"b", 200}, {"c", 33}});
    const SavedRun saved = run_and_save(plan, 3, 5);
    Plan next = plan;
    next.layout = Layout({{"b", 200}});
    for (const int after : {1, 2, 3}) {
      run_on_threads(after, [&](Transport& transport) {
        Runner run(next, transport);
        run.worker.load(saved.states);
        const std::vector<double> owed = bodies::owed(transport, next, run.worker);
        for (std::size_t i = 0; i < owed.size(); ++i) {
          ASSERT_NEAR(owed[i], saved.owed[100 + i], 1e-5) << i << " " << exchange << after;
        }
      });
    }
  }
}

// The workers of an exchange without servers take over what the old servers owed: also with feedback `none`, which
// leaves nothing else in their memories. A step that fails on another rank does not change that.
TEST(SavedWorkers, OweTheSameAfterABadGradientElsewhereWithoutFeedback) {
  Plan plan = bodies::plan_of("topk:ratio=0.1", {"server", true});
  plan.config.feedback = "none";
  plan.layout = 101;
  const SavedRun saved = run_and_save(plan, 3, 5);
  Plan next = plan;
  next.config.downlink = "";
  for (const char* exchange : {"allgather", "server", "sharded", "auto"}) {
    SCOPED_TRACE(exchange);
    next.config.exchange = exchange;
    run_on_threads(2, [&](Transport& transport) {
      Runner run(next, transport);
      run.worker.load(saved.states);
      const Numbers memory = run.worker.memory();
      EXPECT_NE(memory, Numbers(101));
      bodies::fill_gradient(run.gradient, plan.seed, transport.rank(), 5);
      if (transport.rank() == 1) run.gradient[17] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_THROW(run.step(), BadGradient);
      if (transport.rank() == 0) {
        EXPECT_TRUE(same_bits(std::span<const float>(memory), run.worker.memory()));
      } else {
        const Numbers now = run.worker.memory();
        for (std::size_t i = 0; i < memory.size(); ++i) EXPECT_NEAR(memory[i], now[i], 1e-5) << i;
      }
    });
  }
}

// Whether `auto` goes dense depends on the number of workers; the states can be loaded in either case.
TEST(SavedWorkers, OweTheSameWhereAutoGoesDenseForOneOfThem) {
  for (const char* sparsifier : {"topk:ratio=0.15", "regtopk:ratio=0.15", "threshold:ratio=0.15,calibrate=3"}) {
    for (const auto& [before, after] : {std::pair{1, 8}, {8, 1}, {2, 8}, {8, 3}}) {
      Plan plan = bodies::plan_of(sparsifier, {"auto"}, "auto:values=bf16");
      plan.layout = 301;
      const SavedRun saved = run_and_save(plan, before, 6);
      ASSERT_NO_FATAL_FAILURE(check_taken_over(saved, plan, after, 6)) << before << " to " << after;
    }
  }
  // Otherwise the checks above would show nothing.
  for (const auto& [ranks, dense] : {std::pair{1, false}, {8, true}}) {
    run_on_threads(ranks, [&, goes = dense](Transport& transport) {
      Plan plan = bodies::plan_of("topk:ratio=0.15", {"auto"}, "auto:values=bf16");
      plan.layout = 301;
      Runner run(plan, transport);
      EXPECT_EQ(run.step(0).went_dense, goes);
    });
  }
}

}  // namespace
}  // namespace sparsewire::worker_state_test
