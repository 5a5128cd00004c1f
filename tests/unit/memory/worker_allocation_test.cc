// In the steady state a step of many workers allocates nothing, with every exchange, sparsifier and width of values,
// votes and comparisons of replicas included. This program counts every call of operator new, of all ranks.
#include <gtest/gtest.h>

#include <mutex>
#include <new>
#include <utility>

#include "effort.h"
#include "exchange/bodies.h"
#include "meeting.h"
#include "sparsewire/errors.h"
#include "transport/virtual_time.h"
#include "unit/exchange_cases.h"
#include "unit/memory/counted_memory.h"

namespace sparsewire::worker_allocation_test {
namespace {

using bodies::Numbers;
using bodies::Plan;
using bodies::Runner;

constexpr int kRanks = 3;
constexpr std::uint64_t kWarmUp = 60;
constexpr std::uint64_t kMeasured = 20;

// All ranks together, in kMeasured steps.
long allocations_of(const Plan& plan) {
  long before = 0;
  long after = 0;
  Meeting meet(kRanks);
  run_on_threads(kRanks, meet.watched([&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < kWarmUp; ++t) run.step(t);
    meet.arrive_and_wait();
    if (transport.rank() == 0) before = counted_memory.allocations.load();
    meet.arrive_and_wait();
    for (std::uint64_t t = kWarmUp; t < kWarmUp + kMeasured; ++t) run.step(t);
    meet.arrive_and_wait();
    if (transport.rank() == 0) after = counted_memory.allocations.load();
    meet.arrive_and_wait();
  }));
  return after - before;
}

class AllocationsOfAWorker : public EveryExchangeCase {};

INSTANTIATE_TEST_SUITE_P(All, AllocationsOfAWorker, every_spec_and_case(), spec_and_case_as_name);

TEST_P(AllocationsOfAWorker, AreNoneInTheSteadyState) {
  for (const char* codec : {"auto", "auto:values=bf16"}) {
    Plan plan = EveryExchangeCase::plan(codec);
    plan.layout = 20011;
    plan.config.check_every = 5;
    if (name_of(spec()) == "threshold") {  // measured within the warm-up
      plan.config.sparsifier = "threshold:ratio=0.02,calibrate=20";
      if (!plan.config.downlink.empty()) plan.config.downlink = plan.config.sparsifier;
    }
    EXPECT_EQ(allocations_of(plan), 0) << plan.name();
  }
}

// `auto` with a ratio at which full vectors are shorter: all entries are sent instead of the chosen ones.
TEST(AllocationsOfAWorkerThatGoesDense, AreNoneInTheSteadyState) {
  for (const char* feedback : {"ef", "momentum:m=0.9", "none"}) {
    Plan plan = bodies::plan_of("topk:ratio=0.9", {"auto"});
    plan.config.feedback = feedback;
    plan.layout = 2011;
    EXPECT_EQ(allocations_of(plan), 0) << plan.name();
  }
}

// ---- One rank is out of memory ----

struct Ending {
  bool has_failed = false;  // there is an allocation of that number
  int took_back = 0;        // ranks on which the call threw and the next step followed
  int gave_up = 0;          // ranks on which no step can follow
  std::vector<std::uint64_t> sums = std::vector<std::uint64_t>(kRanks);  // of the updates of each rank
};

// The allocation number `number` of rank `odd` fails in `call`. Then all ranks make a step; that rank only if it
// `goes_on` after an error. None must wait for another.
template <class Call>
Ending run_out_of_memory(const Plan& plan, int odd, long number, std::uint64_t steps, bool goes_on, Call call) {
  Ending ending;
  std::mutex mutex;
  const auto body = [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
    const Numbers before = run.worker.memory();
    plan.fill(run.gradient, plan.seed, transport.rank(), 99);
    bool has_thrown = false;
    bool is_lost = false;
    VirtualRank::own().meet();  // so that no rank is still in the calls above
    try {
      if (transport.rank() == odd) left_until_failure_here = number;
      call(run);
      if (transport.rank() == odd) ending.has_failed = std::exchange(left_until_failure_here, -1) < 0;
    } catch (const std::bad_alloc&) {
      left_until_failure_here = -1;
      EXPECT_EQ(transport.rank(), odd);
      ending.has_failed = has_thrown = true;
    } catch (const RankFailed& error) {
      EXPECT_EQ(error.rank(), odd);
      has_thrown = true;
    } catch (const TransportError& error) {
      left_until_failure_here = -1;
      if (transport.rank() == odd) ending.has_failed = true;
      EXPECT_EQ(std::string(error.what()).find("did not respond"), std::string::npos) << error.what();
      has_thrown = is_lost = true;
    }
    const Numbers after = run.worker.memory();
    try {
      if (transport.rank() == odd && has_thrown && !goes_on) throw std::bad_alloc();
      run.step(steps);
    } catch (const std::exception& error) {
      EXPECT_EQ(std::string(error.what()).find("did not respond"), std::string::npos) << error.what();
      is_lost = true;
    }
    if (has_thrown && !is_lost) {
      EXPECT_EQ(before, after);
    }
    VirtualRank::own().meet();  // a rank that has ended would be noticed even if it had not told the others
    const std::lock_guard lock(mutex);
    if (is_lost) ++ending.gave_up;
    if (has_thrown && !is_lost) ++ending.took_back;
    ending.sums[static_cast<std::size_t>(transport.rank())] = run.sum;
  };
  run_on_virtual_time(kRanks, body, kDefaultDeadline);
  return ending;
}

class OneRankOutOfMemory : public ::testing::TestWithParam<bodies::ExchangeCase> {
 protected:
  static Plan plan() {
    Plan plan =
        bodies::plan_of("topk:ratio=0.1", GetParam(), GetParam().exchange == "dense" ? "auto" : "auto:values=bf16");
    plan.layout = 401;
    plan.fill = bodies::fill_exact_gradient;
    plan.config.check_every = 1;
    plan.weights.clear();
    return plan;
  }
  // Without any failure.
  static std::uint64_t sum_of(const Plan& plan, std::uint64_t steps) {
    std::uint64_t sum = 0;
    run_on_threads(kRanks, [&](Transport& transport) {
      Runner run(plan, transport);
      for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
      if (transport.rank() == 0) sum = run.sum;
    });
    return sum;
  }
};

INSTANTIATE_TEST_SUITE_P(Exchanges, OneRankOutOfMemory, ::testing::ValuesIn(bodies::every_exchange_case()),
                         [](const auto& one) { return one.param.name(); });

// Every allocation of a first step fails once. Either all ranks take the step back, and the next one has the bits that
// it would have had as the first; or none can go on.
TEST_P(OneRankOutOfMemory, InAStepFailsAllRanks) {
  const std::uint64_t expected = sum_of(plan(), 1);
  for (const int odd : {0, 2}) {
    int taken_back = 0;
    long number = 0;
    for (bool has_failed = true; has_failed; ++number) {
      SCOPED_TRACE(plan().name() + ", rank " + std::to_string(odd) + ", allocation " + std::to_string(number));
      const Ending ending =
          run_out_of_memory(plan(), odd, number, 0, true, [](Runner& run) { run.worker.step(run.gradient); });
      has_failed = ending.has_failed;
      if (!has_failed) break;
      EXPECT_EQ(ending.took_back + ending.gave_up, kRanks);
      EXPECT_TRUE(ending.took_back == 0 || ending.gave_up == 0) << ending.took_back << " ranks go on";
      if (ending.gave_up > 0) continue;
      ++taken_back;
      for (const std::uint64_t sum : ending.sums) EXPECT_EQ(sum, expected);
    }
    EXPECT_GT(taken_back, 3);
    EXPECT_LT(taken_back, number);
  }
}

// No rank goes on with other options than the others.
TEST_P(OneRankOutOfMemory, InRetuneFailsAllRanks) {
  WorkerConfig other = plan().config;
  other.sparsifier = "topk:ratio=0.2";
  for (const int odd : {0, 2}) {
    long number = 0;
    for (bool has_failed = true; has_failed; number += kSlowBuild ? effort(7, 3) : 1) {
      SCOPED_TRACE(plan().name() + ", rank " + std::to_string(odd) + ", allocation " + std::to_string(number));
      const Ending ending =
          run_out_of_memory(plan(), odd, number, 2, false, [&](Runner& run) { run.worker.retune(other); });
      has_failed = ending.has_failed;
      EXPECT_EQ(ending.gave_up, has_failed ? kRanks : 0);
    }
    EXPECT_GT(number, 10);
  }
}

}  // namespace
}  // namespace sparsewire::worker_allocation_test
