// One rank fails, or gets a message that was damaged on its way: nobody waits for it, and all ranks learn of it in the
// same step, or at their next call if it was the last message of the step. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "exchange/tampering.h"
#include "transport/virtual_time.h"
#include "unit/exchange_cases.h"

namespace sparsewire::one_rank_fails_test {
namespace {

using bodies::ExchangeCase;
using bodies::Plan;
using bodies::Runner;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 3;

// ---- Damaged messages ----

struct Ending {
  bool was_damaged = false;  // there is a message of that number
  bool is_last = false;      // it came with the last call of the exchange, or after it
  int thrown_in_step = 0;    // ranks that threw a TransportError in the step with the damaged message
  int thrown = 0;            // and by the end of the next step
  std::vector<std::string> texts;
};

// Two steps; in the first one, rank `victim` gets the message number `message` damaged. `last_call` is the number of
// the last call of an exchange that carries messages.
Ending run_damaged(const Plan& plan, int victim, int message, Damage how, int last_call) {
  Ending ending;
  std::mutex mutex;
  const auto body = [&](Transport& transport) {
    DamagingTransport damaging(transport);
    Runner run(plan, damaging);
    run.step(0);
    damaging.begin();
    if (transport.rank() == victim) damaging.damage(message, how);
    int step = 1;
    try {
      run.step(1);
      damaging.stop();
      step = 2;
      run.step(2);
    } catch (const TransportError& error) {
      const std::lock_guard lock(mutex);
      ending.thrown += 1;
      ending.thrown_in_step += step == 1 ? 1 : 0;
      ending.texts.emplace_back(error.what());
      EXPECT_THROW(run.step(3), UsageError);
      EXPECT_THROW(run.worker.save(), UsageError);
    }
    if (transport.rank() == victim) {
      const std::lock_guard lock(mutex);
      ending.was_damaged = damaging.has_damaged;
      ending.is_last = damaging.call_of_damage >= last_call;
      // After the last message the others learn of it only because this rank gives up.
      if (ending.thrown > 0 && ending.is_last) {
        VirtualRank::own().arrive();
        throw std::runtime_error("rank " + std::to_string(victim) + " gives up");
      }
    }
    VirtualRank::own().meet();  // before, they must not need that: no rank ends while another one waits for it
  };
  try {
    run_on_virtual_time(kRanks, body, kDefaultDeadline);
  } catch (const std::runtime_error&) {  // that of the victim
    EXPECT_TRUE(ending.is_last);
  }
  return ending;
}

class DamagedMessages : public ::testing::TestWithParam<ExchangeCase> {};

INSTANTIATE_TEST_SUITE_P(Exchanges, DamagedMessages, ::testing::ValuesIn(bodies::every_exchange_case()),
                         [](const auto& one) { return one.param.name(); });

TEST_P(DamagedMessages, FailAllRanksAndNobodyWaits) {
  Plan plan = bodies::plan_of("topk:ratio=0.1", GetParam());
  plan.layout = 200;
  plan.config.check_every = 1;
  const std::string& exchange = plan.config.exchange;
  // In `dense`, trailers and then the three rounds of an all-reduce.
  const int last_call = exchange == "allgather" ? 0 : exchange == "dense" ? 3 : 1;
  for (int victim = 0; victim < kRanks; ++victim) {
    int messages = 0;
    for (bool was_damaged = true; was_damaged; ++messages) {
      for (const Damage how : kDamages) {
        SCOPED_TRACE(plan.name() + ", message " + std::to_string(messages) + " to rank " + std::to_string(victim) +
                     ", damage " + std::to_string(static_cast<int>(how)));
        const Ending ending = run_damaged(plan, victim, messages, how, last_call);
        was_damaged = ending.was_damaged;
        if (!was_damaged) break;
        EXPECT_EQ(ending.thrown, kRanks);
        if (!ending.is_last) {
          EXPECT_EQ(ending.thrown_in_step, kRanks);
        }
        for (const std::string& text : ending.texts) EXPECT_THAT(text, Not(HasSubstr("did not respond")));
      }
    }
    EXPECT_GT(messages, victim == 0 ? 3 : 1);
  }
}

// ---- Errors of one rank ----

// What one rank throws in a step in which `odd` makes a mistake.
using Mistake = std::function<void(Runner&)>;

// All ranks fail in that step; later steps give the same bits as without it. For gradients that add without rounding.
void check_mistake(const Plan& plan, int odd, const Mistake& mistake, const std::string& cause) {
  SCOPED_TRACE(plan.name() + ", rank " + std::to_string(odd));
  std::atomic<int> failed = 0;
  const auto body = [&](Transport& transport) {
    Runner run(plan, transport);
    Runner twin(plan, transport);  // has no such step
    for (std::uint64_t t = 0; t < 4; ++t) run.step(t), twin.step(t);
    plan.fill(run.gradient, plan.seed, transport.rank(), 4);
    try {
      if (transport.rank() == odd) {
        mistake(run);
      } else {
        run.step();
      }
    } catch (const UsageError& error) {
      EXPECT_EQ(transport.rank(), odd);
      EXPECT_THAT(error.what(), HasSubstr(cause));
      ++failed;
    } catch (const RankFailed& error) {
      EXPECT_NE(transport.rank(), odd);
      EXPECT_EQ(error.rank(), odd);
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(odd)));
      EXPECT_THAT(error.what(), HasSubstr("step 4"));
      EXPECT_THAT(error.what(), HasSubstr(cause));
      ++failed;
    }
    EXPECT_EQ(run.worker.memory(), twin.worker.memory());
    std::vector<double> served(plan.layout.dim());
    std::vector<double> served_by_twin(plan.layout.dim());
    run.worker.add_server_memory(served);
    twin.worker.add_server_memory(served_by_twin);
    EXPECT_EQ(served, served_by_twin);
    for (std::uint64_t t = 4; t < 8; ++t) {
      EXPECT_EQ(run.step(t).step, t + 1);
      twin.step(t);
    }
    EXPECT_EQ(run.sum, twin.sum);
    bodies::require_same_everywhere(transport, std::span<const std::uint64_t>(&run.sum, 1), run.at(8));
  };
  run_on_virtual_time(kRanks, body, kDefaultDeadline);
  EXPECT_EQ(failed, kRanks);
}

Plan exact_plan(const std::string& sparsifier, const ExchangeCase& setup) {
  Plan plan = bodies::plan_of(sparsifier, setup);
  plan.layout = 401;
  plan.fill = bodies::fill_exact_gradient;
  plan.weights = {2, 1, 1};
  return plan;
}

TEST_P(EveryExchangeCase, FailsOnAllRanksIfOneGradientHasAnotherSize) {
  const Plan plan = exact_plan(spec(), exchange_case());
  const Mistake too_short = [](Runner& run) { run.worker.step(Gradient(std::span(run.gradient).first(400))); };
  for (const int odd : {0, 2}) check_mistake(plan, odd, too_short, "a gradient of 400 entries does not fit");
}

// A learning rate that is not a number, where the memory holds lr*gradient.
TEST(ABadLearningRate, OnOneRankFailsAllRanks) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    Plan plan = exact_plan("topk:ratio=0.1", setup);
    plan.config.feedback = "ef:scale=lr";
    const Mistake bad_lr = [](Runner& run) {
      run.worker.step(run.gradient, {.lr = std::numeric_limits<float>::quiet_NaN()});
    };
    check_mistake(plan, 2, bad_lr, "lr=nan");
  }
}

// An error of all ranks is thrown as it is by each of them. Here it is the codec's: the regions of `sharded` cannot be
// drawn again from a seed.
TEST(AnErrorOfTheCodec, IsThrownByTheRankThatHasIt) {
  std::atomic<int> thrown = 0;
  run_on_threads(kRanks, [&](Transport& transport) {
    Plan plan = bodies::plan_of("randomk:ratio=0.1", {"sharded"}, "seed");
    Runner run(plan, transport);
    for (int repeat = 0; repeat < 2; ++repeat) {
      try {
        run.step(0);
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("[seed]"));
        ++thrown;
      }
    }
  });
  EXPECT_EQ(thrown, 2 * kRanks);
}

// A bad gradient on one rank and an error on another: the error is worse, and all take the step back.
TEST(AnErrorAndABadGradient, GiveTheErrorOnAllOtherRanks) {
  for (const ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = exact_plan("topk:ratio=0.1", setup);
    std::atomic<int> failed = 0;
    run_on_threads(kRanks, [&](Transport& transport) {
      Runner run(plan, transport);
      run.step(0);
      std::span<const float> gradient = run.gradient;
      if (transport.rank() == 0) run.gradient[3] = std::numeric_limits<float>::quiet_NaN();
      if (transport.rank() == 1) gradient = gradient.first(5);
      try {
        run.worker.step(gradient);
      } catch (const RankFailed& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_NE(transport.rank(), 1);
        ++failed;
      } catch (const UsageError&) {
        EXPECT_EQ(transport.rank(), 1);
        ++failed;
      }
      EXPECT_EQ(run.step(1).step, 2U);
    });
    EXPECT_EQ(failed, kRanks) << setup.name();
  }
}

}  // namespace
}  // namespace sparsewire::one_rank_fails_test
