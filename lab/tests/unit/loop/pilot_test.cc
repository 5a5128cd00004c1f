// A pilot measures the threshold that a training would measure in its first steps.
#include "loop/pilot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/run_or_fail.h"
#include "problems/problem.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "unit/trained.h"

namespace sparsewire::train::pilot_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrainConfig small() {
  TrainConfig config;
  config.problem = "linreg:dim=40,samples=60";
  config.workers = 3;
  config.lr = 0.01;
  config.steps = 60;
  config.seed = 5;
  config.eval_every = 0;
  return config;
}

Pilot pilot_of(const TrainConfig& config, double ratio, std::optional<std::uint64_t> steps = {}) {
  const auto problem = make_problem(config.problem, {.workers = 3, .seed = config.seed, .data = {}});
  std::vector<Pilot> all(3);
  run_on_threads(3, [&](Transport& transport) {
    const Run run{.config = config, .problem = *problem, .transport = transport};
    all[static_cast<std::size_t>(transport.rank())] = run_pilot(run, ratio, steps);
  });
  for (const Pilot& one : all) {
    EXPECT_EQ(one.lambda, all[0].lambda);
    EXPECT_EQ(one.downlink_lambda, all[0].downlink_lambda);
    EXPECT_EQ(one.totals.bytes_up, all[0].totals.bytes_up);
  }
  return all[0];
}

TEST(Pilot, MeasuresWhatATrainingMeasures) {
  for (const char* feedback : {"ef", "ef:scale=lr"}) {
    for (const char* exchange : {"server", "sharded"}) {
      SCOPED_TRACE(std::string(feedback) + " " + exchange);
      TrainConfig config = small();
      config.feedback = feedback;
      config.exchange = exchange;
      config.schedule = "cosine:warmup=5";
      config.downlink = "threshold:ratio=0.2";
      const Pilot pilot = pilot_of(config, 0.1, 20);
      config.sparsifier = "threshold:ratio=0.1,calibrate=20";
      config.downlink = "threshold:ratio=0.2,calibrate=20";
      const Result whole = trained(config);  // goes on for 40 steps with what it measured
      EXPECT_EQ(pilot.lambda, whole.threshold);
      EXPECT_EQ(pilot.downlink_lambda, whole.downlink_threshold);
      EXPECT_EQ(pilot.steps, 20U);
      EXPECT_GT(pilot.totals.bytes_up, 0U);
      EXPECT_LT(pilot.totals.bytes_up, whole.totals.bytes_up);

      config.sparsifier = pilot.sparsifier();
      config.downlink = pilot.downlink();
      config.steps = 1;
      const Result given = trained(config);  // from the first step on
      EXPECT_FLOAT_EQ(static_cast<float>(*given.threshold), static_cast<float>(pilot.lambda));
      EXPECT_FLOAT_EQ(static_cast<float>(*given.downlink_threshold), static_cast<float>(*pilot.downlink_lambda));
    }
  }
}

TEST(Pilot, TakesOneOverTheRatioStepsAlsoIfTheTrainingIsShorter) {
  TrainConfig config = small();
  config.steps = 7;
  config.downlink = "topk:ratio=0.2";
  const Pilot pilot = pilot_of(config, 0.07);
  EXPECT_EQ(pilot.steps, 15U);
  EXPECT_EQ(pilot.downlink(), "");
  EXPECT_THAT(pilot.sparsifier(), HasSubstr("threshold:lambda="));
}

TEST(Pilot, SaysWhyThereIsNoThreshold) {
  TrainConfig config = small();
  EXPECT_THAT([&] { pilot_of(config, 0); }, ThrowsMessage<UsageError>(HasSubstr("ratio")));
  const auto problem = make_problem(config.problem, {.workers = 1, .seed = 0, .data = {}});
  config.workers = 1;
  run_on_threads(1, [&](Transport& transport) {
    train::Run run{.config = config, .problem = *problem, .transport = transport};
    run.stop_requested = [] { return true; };
    EXPECT_THAT([&] { run_pilot(run, 0.1); }, ThrowsMessage<SharedError>(HasSubstr("stopped after step 1 of 10")));
  });
}

TEST(Pilot, SaysWhichThresholdItCouldNotMeasure) {
  TrainConfig config = small();
  config.exchange = "server";
  config.downlink = "threshold:ratio=0.5";  // 20 entries, and three workers send 2 each
  EXPECT_THAT([&] { pilot_of(config, 0.05); }, ThrowsMessage<SharedError>(HasSubstr("no threshold for the downlink")));
  config.problem = "logreg:dim=100,samples=10,density=0.01";  // nearly all gradients are zero
  EXPECT_THAT([&] { pilot_of(config, 1); }, ThrowsMessage<SharedError>(HasSubstr("no threshold for the uplink")));
}

}  // namespace
}  // namespace sparsewire::train::pilot_test
