// sparsewire pilot: a short training with Top-k that measures a threshold.
#include "loop/pilot.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "loop/run_or_fail.h"
#include "loop/stop.h"
#include "options.h"
#include "problems/problem.h"
#include "progress.h"
#include "settings.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "terminal.h"
#include "text/counted.h"
#include "text/number.h"

namespace sparsewire::cli {
namespace {

// Options of a training that a pilot does not have.
std::vector<std::string_view> not_of_a_pilot() {
  return {"sparsifier",     "save_weights",       "eval_every", "eval_train", "measure_every",
          "checkpoint_dir", "checkpoint_every",   "keep",       "resume",     "change",
          "metrics",        "metrics_every_step", "report",     "transport"};
}

struct PilotOptions {
  GivenSettings given;
  std::string ratio = "0.01";
  std::optional<std::uint64_t> steps;
};

Json pilot_json(const train::TrainConfig& config, double ratio, const train::Pilot& pilot) {
  Json shown = train::to_json(config);
  for (const std::string_view key : not_of_a_pilot()) shown.erase(std::string(key));
  Json json{{"config", shown}, {"ratio", ratio}, {"pilot_steps", pilot.steps}, {"sparsifier", pilot.sparsifier()}};
  json["lambda"] = pilot.lambda;
  if (pilot.downlink_lambda) {
    json["downlink"] = pilot.downlink();
    json["downlink_lambda"] = *pilot.downlink_lambda;
  }
  json["bytes_up"] = pilot.totals.bytes_up;
  json["bytes_down"] = pilot.totals.bytes_down;
  json["bytes_served"] = pilot.totals.bytes_served;
  return json;
}

// With --quiet the specs alone, so that a shell can take them.
std::string pilot_text(const train::TrainConfig& config, const std::string& ratio, const train::Pilot& pilot) {
  std::string text = pilot.sparsifier() + "\n";
  if (pilot.downlink_lambda) text += pilot.downlink() + "\n";
  if (config.quiet) return text;
  return text +
         wrapped(fmt::format(
             "measured in {} of Top-k with ratio {}, seed {}; this cost {} bytes up and {} down, of all workers\n",
             counted(pilot.steps, "step"), ratio, config.seed, grouped(pilot.totals.bytes_up),
             grouped(pilot.totals.bytes_down)));
}

// The file may be that of a training. What a pilot does not have is ignored in it, and its report is not overwritten.
train::TrainConfig config_of(const GivenSettings& given) {
  train::TrainConfig config;
  given.apply(config);
  const train::TrainConfig defaults;
  const auto without = not_of_a_pilot();
  for (const train::Setting& setting : train::settings()) {
    const std::string_view name = setting.option.name;
    const bool is_ignored = std::find(without.begin(), without.end(), name) != without.end() ||
                            (name == "json" && !given.texts.contains("json"));
    if (is_ignored) train::set_from_json(config, setting, train::value_of(defaults, setting));
  }
  return config;
}

void pilot(const PilotOptions& options) {
  ignore_broken_outputs();
  check_alone("a pilot runs its workers as threads, so start it without mpirun");
  train::TrainConfig config = config_of(options.given);
  if (config.workers == 0) config.workers = 4;
  config.sparsifier = "topk:k=1";  // is not used, and fits every model
  train::check(config);
  const auto ratio = parse_number<double>(options.ratio);
  if (!ratio || !kRatioRange.holds(*ratio)) {
    throw UsageError(fmt::format("--ratio {} is not a number in {}", options.ratio, kRatioRange.text()));
  }
  const auto json_path = config.json.empty() ? std::nullopt : std::optional(config.json);
  check_distinct({{"--config", options.given.config_file}, {"--json", json_path}});
  check_place(json_path);
  const auto problem = train::make_problem(config.problem, train::problem_place(config));
  train::Pilot result;
  try {
    const train::StopSignals signals;
    run_on_threads(
        static_cast<int>(config.workers),
        [&](Transport& transport) {
          train::Run run{.config = config, .problem = *problem, .transport = transport};
          run.stop_requested = train::stop_requested;
          const train::Pilot mine = train::run_pilot(run, *ratio, options.steps);
          if (transport.rank() == 0) result = mine;
        },
        deadline_of(config));
  } catch (const train::SharedError& error) {
    if (error.is_usage()) throw UsageError(error.what());
    throw;
  }
  Report report(json_path, pilot_json(config, *ratio, result), pilot_text(config, options.ratio, result));
  report.print();
  report.commit();
}

}  // namespace

void add_pilot(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("pilot", "Measure a threshold in a short training with Top-k");
  command->footer(
      "Prints a spec for --sparsifier, so that another training has the threshold from\n"
      "its first step on. --steps is that of the other training: its schedule counts.\n"
      "Give another --seed than that training has.\n"
      "Examples:\n"
      "  sparsewire pilot --ratio 0.01 --seed 7\n"
      "  sparsewire train --sparsifier $(sparsewire pilot --ratio 0.01 --seed 7 -q)");
  add_load(*command);
  const auto options = std::make_shared<PilotOptions>();
  command->add_option("--ratio", options->ratio, "Share of the entries that are to be sent (default 0.01)")
      ->type_name("X")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_integer(*command, "--pilot-steps", options->steps, 1, std::uint64_t{1} << 32,
              "Steps of the pilot (default: 1/ratio; with fewer the threshold does not last)");
  add_config(*command, options->given);
  add_settings(*command, train::TrainConfig{}, not_of_a_pilot(), options->given);
  command->callback([options] { pilot(*options); });
}

}  // namespace sparsewire::cli
