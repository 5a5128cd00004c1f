#include "train/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number.h"
#include "files/input.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "train/optimiser.h"
#include "train/schedule.h"

namespace sparsewire::train {
namespace {

constexpr double kMostSteps = 1e15;  // counted exactly by a double, and by JSON
constexpr Range kSteps{.min = 0, .max = kMostSteps};
constexpr Range kPositive{.min = 0, .max = 3e38, .above_min = true};
constexpr bool kMayChange = true;

std::vector<Setting> make_settings() {
  using C = TrainConfig;
  std::vector<Setting> all;
  const auto string = [&](std::string C::*member, Option option) { all.push_back({option, member}); };
  const auto integer = [&](std::uint64_t C::*member, Option option) { all.push_back({option, {}, member}); };
  const auto number = [&](double C::*member, Option option) { all.push_back({option, {}, {}, member}); };
  const auto flag = [&](bool C::*member, Option option) { all.push_back({option, {}, {}, {}, member}); };

  string(&C::problem, {"problem", "SPEC", "What is trained; see 'sparsewire list'"});
  string(&C::data, {"data", "FILE", "For problems that take one", kMayChange});  // a checkpoint knows its contents
  integer(&C::workers, {"workers", "N", "Workers", kMayChange, {.min = 1, .max = 1024}});
  string(&C::sparsifier, {"sparsifier", "SPEC", "Which entries travel"});
  string(&C::feedback, {"feedback", "SPEC", "What happens to the rest: ef, none or momentum"});
  string(&C::exchange, {"exchange", "SPEC", "Who talks to whom: dense, allgather, server, sharded or auto"});
  string(&C::downlink, {"downlink", "SPEC", "A sparsifier for the server's answer (default: none)"});
  string(&C::codec, {"codec", "SPEC", "How entries travel"});
  string(&C::downlink_codec, {"downlink_codec", "SPEC", "Likewise for the server's answer (default: as --codec)"});
  string(&C::scope,
         {"scope", "WORD", "Whether the ratio counts by layer or for the model", false, {}, {"model", "layer"}});
  string(&C::optimiser, {"optimiser", "SPEC", "How an update changes the weights: sgd, adam or adamw"});
  number(&C::lr, {"lr", "X", "Learning rate", false, kPositive});
  string(&C::schedule, {"schedule", "SPEC", "How it changes: constant, step or cosine"});
  number(&C::clip, {"clip", "X", "Each worker's gradient is cut to this norm; 0: not", false, {.min = 0, .max = 3e38}});
  integer(&C::local_steps,
          {"local_steps", "N", "Gradients that a worker follows before it exchanges", false, {.min = 1, .max = 1e6}});
  integer(&C::steps, {"steps", "N", "Exchanges", kMayChange, kSteps});
  integer(&C::seed, {"seed", "N", "Of everything that is drawn", false, {.min = 0, .max = kMostSteps}});
  integer(&C::eval_every, {"eval_every", "N", "Steps between two evaluations; 0: only at the end", kMayChange, kSteps});
  integer(&C::check_every, {"check_every", "N", "Steps between two looks whether all replicas are the same; 0: never",
                            kMayChange, kSteps});
  string(&C::checkpoint_dir, {"checkpoint_dir", "DIR", "Where checkpoints go (default: none are written)", kMayChange});
  integer(&C::checkpoint_every,
          {"checkpoint_every", "N", "Steps between two checkpoints; 0: only at the end", kMayChange, kSteps});
  integer(&C::keep, {"keep", "N", "Checkpoints that stay", kMayChange, {.min = 1, .max = 1e6}});
  flag(&C::resume, {"resume", "", "Go on from the newest checkpoint, or begin where there is none", kMayChange});
  string(&C::metrics, {"metrics", "FILE", "One JSON line for each step", kMayChange});
  string(&C::json, {"json", "FILE", "Also write a report to FILE; - is standard output, without the text", kMayChange});
  number(&C::deadline, {"deadline",
                        "SECONDS",
                        "How long a worker waits for another",
                        kMayChange,
                        {.min = 0, .max = 1e6, .above_min = true}});
  string(&C::transport, {"transport", "WORD", "threads, or mpi under mpirun", kMayChange, {}, {"threads", "mpi"}});
  flag(&C::quiet, {"quiet", "", "No configuration and no progress", kMayChange});
  return all;
}

[[noreturn]] void refuse(const Setting& setting, const std::string& value, const std::string& allowed) {
  throw UsageError(fmt::format("{} {} is not {}", long_name(setting.option.name), value, allowed));
}

void set_string(TrainConfig& config, const Setting& setting, const std::string& value) {
  const auto& words = setting.option.words;
  if (!words.empty() && std::find(words.begin(), words.end(), value) == words.end()) {
    std::string list;
    for (const std::string_view word : words) list += fmt::format("{}{}", list.empty() ? "" : " or ", word);
    refuse(setting, "'" + value + "'", list);
  }
  config.*setting.string = value;
}

void set_integer(TrainConfig& config, const Setting& setting, std::uint64_t value, const std::string& shown) {
  if (!setting.option.range.holds(static_cast<double>(value))) {
    refuse(setting, shown, "a whole number in " + setting.option.range.text());
  }
  config.*setting.integer = value;
}

void set_number(TrainConfig& config, const Setting& setting, double value, const std::string& shown) {
  if (!std::isfinite(value) || !setting.option.range.holds(value)) {
    refuse(setting, shown, "a number in " + setting.option.range.text());
  }
  config.*setting.number = value;
}

std::string as_written(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = make_settings();
  return all;
}

std::string long_name(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return "--" + dashed;
}

void set_from_text(TrainConfig& config, const Setting& setting, const std::string& given) {
  if (setting.string != nullptr) set_string(config, setting, given);
  if (setting.integer != nullptr) {
    const auto value = parse_number<std::uint64_t>(given);
    if (!value) refuse(setting, given, "a whole number in " + setting.option.range.text());
    set_integer(config, setting, *value, given);
  }
  if (setting.number != nullptr) {
    const auto value = parse_number<double>(given);
    if (!value) refuse(setting, given, "a number in " + setting.option.range.text());
    set_number(config, setting, *value, given);
  }
  if (setting.flag != nullptr) {
    if (given != "true" && given != "false") refuse(setting, given, "true or false");
    config.*setting.flag = given == "true";
  }
}

void set_from_json(TrainConfig& config, const Setting& setting, const Json& value) {
  if (setting.string != nullptr) {
    if (!value.is_string()) refuse(setting, shown(value), "a string");
    set_string(config, setting, value.get<std::string>());
  }
  if (setting.integer != nullptr) {
    if (!value.is_number_unsigned()) refuse(setting, shown(value), "a whole number in " + setting.option.range.text());
    set_integer(config, setting, value.get<std::uint64_t>(), shown(value));
  }
  if (setting.number != nullptr) {
    if (!value.is_number()) refuse(setting, shown(value), "a number in " + setting.option.range.text());
    set_number(config, setting, value.get<double>(), shown(value));
  }
  if (setting.flag != nullptr) {
    if (!value.is_boolean()) refuse(setting, shown(value), "true or false");
    config.*setting.flag = value.get<bool>();
  }
}

void set_from_object(TrainConfig& config, const Json& object) {
  if (!object.is_object()) throw UsageError("not a JSON object {\"option\": value, ...}");
  std::vector<std::string> seen;
  for (const auto& [key, value] : object.items()) {
    const std::string name = as_written(key);
    const auto found = std::find_if(settings().begin(), settings().end(),
                                    [&](const Setting& setting) { return setting.option.name == name; });
    if (found == settings().end()) {
      std::string names;
      for (const Setting& setting : settings())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", setting.option.name);
      throw UsageError(fmt::format("'{}' is not an option; there are {}", key, names));
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw UsageError(fmt::format("'{}' is given twice", name));
    seen.push_back(name);
    set_from_json(config, *found, value);
  }
}

void set_from_file(TrainConfig& config, const std::string& path) {
  const files::Bytes bytes = files::read_file(path);
  const auto* const begin = reinterpret_cast<const char*>(bytes.span().data());
  constexpr bool kWithComments = true;
  try {
    set_from_object(config, Json::parse(begin, begin + bytes.size, nullptr, true, kWithComments));
  } catch (const Json::exception& error) {  // "[json.exception.parse_error.101] parse error at line 1, ..."
    const std::string_view what = error.what();
    throw UsageError(fmt::format("'{}': {}", path, what.substr(what.find("] ") + 2)));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  }
}

Json value_of(const TrainConfig& config, const Setting& setting) {
  if (setting.string != nullptr) return config.*setting.string;
  if (setting.integer != nullptr) return config.*setting.integer;
  if (setting.number != nullptr) return config.*setting.number;
  return config.*setting.flag;
}

Json to_json(const TrainConfig& config) {
  Json json = Json::object();
  for (const Setting& setting : settings()) json[std::string(setting.option.name)] = value_of(config, setting);
  return json;
}

void check(const TrainConfig& config) {
  const Feedback feedback = parse_feedback(config.feedback);
  const auto optimiser = make_optimiser(config.optimiser, 0);
  make_schedule(config.schedule, config.lr, config.steps);
  if (feedback.scale_by_lr && config.local_steps > 1) {
    throw UsageError(
        fmt::format("--feedback {} does not go with --local-steps {}: what is exchanged then are differences of "
                    "weights, with the learning rate in them",
                    config.feedback, config.local_steps));
  }
  if (feedback.scale_by_lr && !optimiser->is_plain()) {
    throw UsageError(fmt::format(
        "--feedback {} goes with plain sgd only, not with --optimiser {}: the update holds the learning rate already",
        config.feedback, config.optimiser));
  }
  if (feedback.kind == Feedback::Kind::momentum && optimiser->has_momentum()) {
    throw UsageError(fmt::format("--feedback {} does not go with --optimiser {}: there would be momentum twice",
                                 config.feedback, config.optimiser));
  }
  if (config.metrics == "-") throw UsageError("--metrics - is not a file: standard output is for the report");
  if (config.resume && config.checkpoint_dir.empty()) throw UsageError("--resume needs --checkpoint-dir");
}

WorkerConfig worker_config(const TrainConfig& config) {
  WorkerConfig worker;
  worker.sparsifier = config.sparsifier;
  worker.feedback = config.feedback;
  worker.exchange = config.exchange;
  worker.codec = config.codec;
  worker.downlink = config.downlink;
  worker.downlink_codec = config.downlink_codec;
  worker.scope = config.scope == "layer" ? Scope::layer : Scope::model;
  worker.seed = config.seed;
  worker.check_every = config.check_every;
  return worker;
}

std::string difference(const TrainConfig& before, const TrainConfig& now) {
  std::string all;
  for (const Setting& setting : settings()) {
    if (setting.option.may_change) continue;
    const Json old = value_of(before, setting);
    const Json given = value_of(now, setting);
    if (shown(old) == shown(given)) continue;  // as text: what is not UTF-8 was saved with replacements
    all += fmt::format("{}{} was {} and is {}", all.empty() ? "" : ", ", long_name(setting.option.name), shown(old),
                       shown(given));
  }
  return all;
}

}  // namespace sparsewire::train
