// Learning rates, compared with values computed by hand.
#include "loop/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "sparsewire/errors.h"

namespace sparsewire::train::schedule_test {
namespace {

using ::testing::HasSubstr;

struct Expected {
  std::string spec;
  std::vector<double> lr;  // of steps 0, 1, ... of a training of 8 steps at 0.8
};

TEST(Schedule, GivesTheseRates) {
  const std::vector<Expected> all = {
      {"constant", {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8}},
      {"constant:warmup=4", {0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8}},
      {"constant:warmup=1", {0.8, 0.8, 0.8}},
      {"step:every=3,factor=0.5", {0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1}},
      {"step:every=3,factor=0.5,warmup=4", {0.2, 0.4, 0.6, 0.4, 0.4, 0.4, 0.2}},
      {"step", {0.8, 0.8, 0.08, 0.08, 0.008, 0.008}},
      // (1 + cos(pi t/8))/2, by hand: cos 0, 22.5, 45, 67.5, 90 degrees, ...
      {"cosine",
       {0.8, 0.76955181300, 0.68284271247, 0.55307337294, 0.4, 0.24692662706, 0.11715728753, 0.03044818700, 0, 0}},
      {"cosine:min=0.2,warmup=4", {0.2, 0.4, 0.6, 0.8, 0.8, 0.71213203436, 0.5, 0.28786796564, 0.2}},
      {"cosine:warmup=100", {0.008, 0.016, 0.024}},
      {"inverse:offset=2", {0.8, 1.6 / 3, 0.4, 0.32, 1.6 / 6}},
      {"inverse:offset=2,warmup=4", {0.2, 0.4, 0.6, 0.8, 0.8, 1.6 / 3, 0.4}},
      {"inverse:offset=0.5", {0.8, 0.4 / 1.5, 0.16}},
      {"inverse", {0.8, 0.4, 0.8 / 3, 0.2}},
  };
  for (const Expected& expected : all) {
    SCOPED_TRACE(expected.spec);
    const Schedule schedule = make_schedule(expected.spec, 0.8, 8);
    for (std::size_t step = 0; step < expected.lr.size(); ++step) {
      EXPECT_NEAR(schedule.lr(step), expected.lr[step], 1e-11) << step;
    }
  }
}

TEST(Schedule, StaysFiniteBeyondTheEndAndWithoutSteps) {
  for (const ScheduleInfo& info : schedules()) {
    SCOPED_TRACE(info.name);
    for (const std::uint64_t steps : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
      const Schedule schedule = make_schedule(info.example, 0.1, steps);
      for (const std::uint64_t step : {std::uint64_t{0}, steps, std::numeric_limits<std::uint64_t>::max()}) {
        EXPECT_GE(schedule.lr(step), 0) << step;
        EXPECT_LE(schedule.lr(step), 0.1) << step;
      }
    }
  }
}

TEST(Schedule, RefusesABadSpec) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"linear", "there are constant, step, cosine"},
      {"step:every=0", "every=0 is not a whole number in [1, "},
      {"step:factor=0", "factor=0 is not in (0, 1]"},
      {"cosine:min=0.9", "min=0.9 is not in [0, 0.8]"},
      {"constant:warmup=-1", "warmup=-1 is not a whole number"},
      {"constant:every=3", "unknown key 'every'"},
  };
  for (const auto& [spec, says] : wrong) {
    SCOPED_TRACE(spec);
    try {
      make_schedule(spec, 0.8, 8);
      ADD_FAILURE() << "was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(Schedule, RefusesALearningRateThatIsNotPositive) {
  for (const double lr :
       {0.0, -0.1, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(make_schedule("constant", lr, 8), UsageError) << lr;
  }
}

}  // namespace
}  // namespace sparsewire::train::schedule_test
