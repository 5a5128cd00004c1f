#include "loop/pilot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "loop/run_or_fail.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"

namespace sparsewire::train {
namespace {

constexpr std::uint64_t kMostPilotSteps = std::uint64_t{1} << 32;

std::string measuring(double ratio, std::uint64_t steps) {
  return fmt::format("threshold:ratio={:.17g},calibrate={}", ratio, steps);
}

// Nine digits are a float exactly.
std::string with_lambda(double lambda) { return fmt::format("threshold:lambda={:.9g}", lambda); }

// A downlink that is a threshold to be measured becomes one that is measured when the pilot ends. With a rule there is
// nothing to measure.
std::string downlink_of(const std::string& given, std::uint64_t steps) {
  if (given.empty()) return given;
  Spec spec(given);
  if (spec.name() != "threshold" || !spec.has("ratio") || spec.has("rule")) return given;
  const auto ratio = spec.number("ratio", kRatioRange);
  spec.integer("calibrate", 1, kMostPilotSteps);  // the pilot's own number of steps counts
  spec.finish();
  return measuring(*ratio, steps);
}

}  // namespace

std::string Pilot::sparsifier() const { return with_lambda(lambda); }
std::string Pilot::downlink() const { return downlink_lambda ? with_lambda(*downlink_lambda) : std::string(); }

std::uint64_t pilot_steps(double ratio) {
  return static_cast<std::uint64_t>(std::min(std::ceil(1 / ratio), double{kMostPilotSteps}));
}

Pilot run_pilot(const Run& run, double ratio, std::optional<std::uint64_t> given_steps) {
  if (!kRatioRange.holds(ratio)) {
    throw UsageError(fmt::format("a pilot's ratio {} is not in {}", ratio, kRatioRange.text()));
  }
  const std::uint64_t steps = given_steps.value_or(pilot_steps(ratio));
  if (steps == 0) throw UsageError("a pilot needs at least one step");
  TrainConfig config = run.config;
  config.sparsifier = measuring(ratio, steps);
  config.downlink = downlink_of(config.downlink, steps);
  config.steps = std::max(config.steps, steps);  // the schedule is that of the whole training
  config.eval_every = 0;
  config.measure_every = 0;
  config.metrics.clear();
  config.checkpoint_dir.clear();
  config.resume = false;
  config.change.clear();
  config.save_weights.clear();
  std::uint64_t asked = 0;  // once in each step, on each rank
  bool was_asked_to_stop = false;
  Run pilot{
      .config = config, .problem = run.problem, .transport = run.transport, .initial_weights = run.initial_weights};
  pilot.on_step = run.on_step;
  pilot.log = run.log;
  pilot.stop_requested = [&] {
    was_asked_to_stop = was_asked_to_stop || run.stop_requested();
    return ++asked >= steps || was_asked_to_stop;
  };
  const Result result = train(pilot);
  if (result.step < steps) {
    throw SharedError(fmt::format("the pilot was stopped after step {} of {}", result.step, steps), /*is_usage=*/false);
  }
  const bool has_downlink = config.downlink != run.config.downlink;
  const bool failed_up = !(result.threshold.value_or(0) > 0);
  if (failed_up || (has_downlink && !(result.downlink_threshold.value_or(0) > 0))) {
    throw SharedError(
        fmt::format("the pilot measured no threshold for the {}: fewer than k entries were not zero there",
                    failed_up ? "uplink" : "downlink"),
        /*is_usage=*/false);
  }
  return {.lambda = *result.threshold,
          .downlink_lambda = has_downlink ? result.downlink_threshold : std::nullopt,
          .steps = steps,
          .totals = result.totals};
}

}  // namespace sparsewire::train
