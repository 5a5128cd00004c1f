// A threshold under schedules of the learning rate, where the memory holds lr*gradient: how many entries are sent in
// each stretch of 50 steps, on a worker and by a downlink.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "reference/inputs.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"

namespace sparsewire::schedules_test {
namespace {

using reference::Numbers;

constexpr std::uint64_t kSize = 2000;
constexpr int kSteps = 400;
constexpr int kStretch = 50;

struct NamedSchedule {
  std::string name;
  std::function<double(int step)> lr;
};
const std::vector<NamedSchedule>& all_schedules() {
  static const std::vector<NamedSchedule> all = {
      {"warm-up", [](int step) { return 0.3 * std::min(1.0, (step + 1) / 100.0); }},
      {"steps of 10", [](int step) { return 0.3 * std::pow(0.1, step / 150); }},
      {"cosine", [](int step) { return 0.03 + 0.135 * (1 + std::cos(std::numbers::pi * step / kSteps)); }},
  };
  return all;
}

struct Counts {
  std::vector<double> up;    // entries that the workers sent, in each stretch
  std::vector<double> down;  // entries of the update
};

Counts count(const WorkerConfig& config, const std::function<double(int)>& lr) {
  Counts counts{std::vector<double>(kSteps / kStretch), std::vector<double>(kSteps / kStretch)};
  run_on_threads(2, [&](Transport& transport) {
    Worker worker(config, Layout(kSize), transport);
    for (int step = 0; step < kSteps; ++step) {
      const Numbers gradient =
          reference::input("normal").make(kSize, step, 5 + static_cast<unsigned>(transport.rank()));
      worker.step(gradient, {.lr = static_cast<float>(lr(step))});
      if (transport.rank() != 0) continue;
      counts.up[static_cast<std::size_t>(step / kStretch)] += static_cast<double>(worker.stats().entries_sent);
      counts.down[static_cast<std::size_t>(step / kStretch)] += static_cast<double>(worker.stats().entries_total);
    }
  });
  return counts;
}

void expect_within(const std::vector<double>& expected, const std::vector<double>& actual, double part) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], part * expected[i]) << "stretch " << i;
    EXPECT_GT(expected[i], 1000.0);
  }
}

// About half of the entries are sent in a step, so the memory is young, and has the learning rate of the last steps.
TEST(ThresholdUnderSchedules, SendsAsManyAsWithAConstantLearningRate) {
  for (const char* exchange : {"server", "sharded"}) {
    WorkerConfig config{.sparsifier = "threshold:lambda=0.7", .exchange = exchange};
    config.downlink = "threshold:lambda=0.3";
    const Counts expected = count(config, [](int) { return 1.0; });
    config.feedback = "ef:scale=lr";
    for (const NamedSchedule& schedule : all_schedules()) {
      SCOPED_TRACE(std::string(exchange) + ", " + schedule.name);
      const Counts actual = count(config, schedule.lr);
      expect_within(expected.up, actual.up, 0.02);
      expect_within(expected.down, actual.down, 0.02);
    }
  }
}

// So do a threshold that is measured during a warm-up, and the rule.
TEST(ThresholdUnderSchedules, MeasuresTheSameLambdaAsWithAConstantLearningRate) {
  for (const char* spec : {"threshold:ratio=0.5,calibrate=150", "threshold:ratio=0.004,rule=sqrt"}) {
    WorkerConfig config{.sparsifier = spec, .exchange = "server"};
    config.downlink = spec;
    const Counts expected = count(config, [](int) { return 1.0; });
    config.feedback = "ef:scale=lr";
    for (const NamedSchedule& schedule : all_schedules()) {
      SCOPED_TRACE(std::string(spec) + ", " + schedule.name);
      const Counts actual = count(config, schedule.lr);
      expect_within(expected.up, actual.up, 0.02);
      expect_within(expected.down, actual.down, 0.02);
    }
  }
}

// With fewer entries a change of the learning rate shows for some steps, until the memory has forgotten it.
TEST(ThresholdUnderSchedules, SendsAsManyAsBeforeOnceTheMemoryIsOfTheNewLearningRate) {
  WorkerConfig config{.sparsifier = "threshold:lambda=3", .exchange = "server"};  // about 7 %
  const Counts expected = count(config, [](int) { return 1.0; });
  config.feedback = "ef:scale=lr";
  for (const NamedSchedule& schedule : all_schedules()) {
    if (schedule.name == "cosine") continue;  // never stops to change
    SCOPED_TRACE(schedule.name);
    const Counts actual = count(config, schedule.lr);
    for (int i = 0; i < kSteps / kStretch; ++i) {
      const bool has_changed = schedule.name == "warm-up" ? i < 2 : i == 3 || i == 6;
      if (has_changed) continue;
      const auto at = static_cast<std::size_t>(i);
      EXPECT_NEAR(actual.up[at], expected.up[at], 0.02 * expected.up[at]) << "stretch " << i;
    }
  }
}

// Where few entries are sent, the memory is old: it holds gradients times the larger learning rates of their steps,
// which count for more than those of now. The same in units of the gradient: before each step the memory is multiplied
// by the quotient of the two learning rates. Then the counts are the same under every schedule.
TEST(ThresholdUnderSchedules, CountsAnOldMemoryByTheLearningRatesItWasMadeWith) {
  constexpr double kLambda = 6;
  WorkerConfig config{.sparsifier = "threshold:lambda=6", .feedback = "ef:scale=lr", .exchange = "server"};
  for (const NamedSchedule& schedule : all_schedules()) {
    SCOPED_TRACE(schedule.name);
    std::vector<double> memory(kSize);
    std::vector<double> expected(kSteps / kStretch);
    for (int step = 0; step < kSteps; ++step) {
      const Numbers gradient = reference::input("normal").make(kSize, step, 5);
      const double factor = step == 0 ? 1 : schedule.lr(step - 1) / schedule.lr(step);
      for (std::size_t i = 0; i < kSize; ++i) {
        memory[i] = factor * memory[i] + static_cast<double>(gradient[i]);
        if (std::abs(memory[i]) < kLambda) continue;
        memory[i] = 0;
        ++expected[static_cast<std::size_t>(step / kStretch)];
      }
    }
    const std::vector<double> actual = count(config, schedule.lr).up;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 2 + 0.002 * expected[i]) << "stretch " << i;
    }
  }
}

}  // namespace
}  // namespace sparsewire::schedules_test
