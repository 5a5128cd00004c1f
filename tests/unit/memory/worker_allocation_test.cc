// In the steady state a step of many workers allocates nothing, with every exchange, sparsifier and width of values,
// votes and comparisons of replicas included. This program counts every call of operator new, of all ranks.
#include <gtest/gtest.h>

#include <barrier>

#include "exchange/bodies.h"
#include "unit/exchange_cases.h"
#include "unit/memory/counted_memory.h"

namespace sparsewire::worker_allocation_test {
namespace {

using bodies::Plan;
using bodies::Runner;

constexpr int kRanks = 3;
constexpr std::uint64_t kWarmUp = 60;
constexpr std::uint64_t kMeasured = 20;

// All ranks together, in kMeasured steps.
long allocations_of(const Plan& plan) {
  long before = 0;
  long after = 0;
  std::barrier meet(kRanks);
  run_on_threads(kRanks, [&](Transport& transport) {
    Runner run(plan, transport);
    for (std::uint64_t t = 0; t < kWarmUp; ++t) run.step(t);
    meet.arrive_and_wait();
    if (transport.rank() == 0) before = counted_memory.allocations.load();
    meet.arrive_and_wait();
    for (std::uint64_t t = kWarmUp; t < kWarmUp + kMeasured; ++t) run.step(t);
    meet.arrive_and_wait();
    if (transport.rank() == 0) after = counted_memory.allocations.load();
    meet.arrive_and_wait();
  });
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

}  // namespace
}  // namespace sparsewire::worker_allocation_test
