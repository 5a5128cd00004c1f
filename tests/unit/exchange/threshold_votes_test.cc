// Thresholds that all ranks agree on.
#include <gtest/gtest.h>

#include "unit/exchange_cases.h"

namespace sparsewire::threshold_votes_test {
namespace {

using bodies::Plan;
using bodies::Runner;

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

}  // namespace
}  // namespace sparsewire::threshold_votes_test
