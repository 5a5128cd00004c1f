#include "train/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

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
constexpr std::uint64_t kLongestFile = 1 << 20;  // of a config file, in bytes: a device or a wrong file shows early

std::vector<Setting> make_settings() {
  using C = TrainConfig;
  return {
      {{"problem", "SPEC", "What is trained; 'sparsewire list' shows all"}, &C::problem},
      // A checkpoint knows the contents of the data, so their name may change.
      {{"data", "FILE", "Data for problems that take them (logreg)", kMayChange}, &C::data},
      {{"workers", "N", "Number of workers", kMayChange, {.min = 1, .max = 1024}}, &C::workers},
      {{"sparsifier", "SPEC", "Which entries of a gradient are sent"}, &C::sparsifier},
      {{"feedback", "SPEC", "What happens to entries that are not sent: ef (kept for later), none or momentum"},
       &C::feedback},
      {{"exchange", "SPEC",
        "Who sends to whom: dense, allgather, server, sharded or auto. dense moves whole vectors, so a sparsifier "
        "saves nothing there"},
       &C::exchange},
      {{"downlink", "SPEC", "Sparsifier for the servers' answers (default: none, all entries are sent)"}, &C::downlink},
      {{"codec", "SPEC", "How entries are encoded"}, &C::codec},
      {{"downlink_codec", "SPEC", "How the servers' answers are encoded (default: as --codec)"}, &C::downlink_codec},
      {{"downlink_feedback",
        "WORD",
        "What happens to entries that servers do not send: ef (kept for later) or none (dropped)",
        false,
        {},
        {"ef", "none"}},
       &C::downlink_feedback},
      {{"scope", "WORD", "What a ratio applies to: model, or each layer", false, {}, {"model", "layer"}}, &C::scope},
      {{"optimiser", "SPEC", "How an update changes the weights: sgd, adam or adamw"}, &C::optimiser},
      {{"lr", "X", "Learning rate", false, kPositive}, &C::lr},
      {{"schedule", "SPEC", "How the learning rate changes: constant, step, cosine or inverse"}, &C::schedule},
      {{"clip", "X", "Clip each worker's gradient to this norm; 0: do not clip", false, {.min = 0, .max = 3e38}},
       &C::clip},
      {{"local_steps", "N", "Optimiser steps of a worker between two exchanges", false, {.min = 1, .max = 1e6}},
       &C::local_steps},
      {{"steps", "N", "Number of exchanges", kMayChange, kSteps}, &C::steps},
      {{"seed", "N", "Random seed", false, {.min = 0, .max = kMostSteps}}, &C::seed},
      {{"eval_every", "N", "Steps between two evaluations; 0: only at the end", kMayChange, kSteps}, &C::eval_every},
      {{"measure_every", "N", "Steps between two measurements of xi and gamma, which cost a dense step; 0: none",
        kMayChange, kSteps},
       &C::measure_every},
      {{"check_every", "N", "Steps between two checks that all workers have the same update; 0: never", kMayChange,
        kSteps},
       &C::check_every},
      {{"checkpoint_dir", "DIR", "Folder for checkpoints (default: none are written)", kMayChange}, &C::checkpoint_dir},
      {{"checkpoint_every", "N", "Steps between two checkpoints; 0: only at the end", kMayChange, kSteps},
       &C::checkpoint_every},
      {{"keep", "N", "Number of checkpoints to keep", kMayChange, {.min = 1, .max = 1e6}}, &C::keep},
      {{"resume", "", "Continue from the newest checkpoint; start at step 0 if there is none", kMayChange}, &C::resume},
      {{"metrics", "FILE", "Write one line of JSON for each step; docs/train.md explains its keys", kMayChange},
       &C::metrics},
      {{"json", "FILE", "Also write a report to FILE; - prints it instead of the text", kMayChange}, &C::json},
      {{"deadline",
        "SECONDS",
        "How long to wait for another worker",
        kMayChange,
        {.min = 0, .max = 1e6, .above_min = true}},
       &C::deadline},
      {{"transport",
        "WORD",
        "threads of this process, or mpi (processes that mpirun starts)",
        kMayChange,
        {},
        {"threads", "mpi"}},
       &C::transport},
      {{"quiet", "", "Print neither the configuration nor progress", kMayChange}, &C::quiet},
  };
}

// What a value of an option must be, for errors.
std::string allowed(const Option& option, std::string TrainConfig::*) {
  std::string list;
  for (const std::string_view word : option.words) list += fmt::format("{}{}", list.empty() ? "" : " or ", word);
  return option.words.empty() ? "a string" : list;
}
std::string allowed(const Option& option, std::uint64_t TrainConfig::*) {
  return "a whole number in " + option.range.text();
}
std::string allowed(const Option& option, double TrainConfig::*) { return "a number in " + option.range.text(); }
std::string allowed(const Option& /*option*/, bool TrainConfig::*) { return "true or false"; }

// Whether the value is one of those.
bool is_allowed(const Option& option, const std::string& value) {
  return option.words.empty() || std::find(option.words.begin(), option.words.end(), value) != option.words.end();
}
bool is_allowed(const Option& option, std::uint64_t value) { return option.range.holds(static_cast<double>(value)); }
bool is_allowed(const Option& option, double value) { return std::isfinite(value) && option.range.holds(value); }
bool is_allowed(const Option& /*option*/, bool /*value*/) { return true; }

// The value as the member's type; nothing if it is not of that type.
template <class T>
std::optional<T> parse_text(const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return text == "true" ? std::optional(true) : text == "false" ? std::optional(false) : std::nullopt;
  } else {
    return parse_number<T>(text);
  }
}

template <class T>
std::optional<T> parse_value(const Json& value) {
  const bool is_right = std::is_same_v<T, std::string>     ? value.is_string()
                        : std::is_same_v<T, bool>          ? value.is_boolean()
                        : std::is_same_v<T, std::uint64_t> ? value.is_number_unsigned()
                                                           : value.is_number();
  return is_right ? std::optional(value.get<T>()) : std::nullopt;
}

// `parse` makes an optional value of the type that it is given as an example.
template <class Parse>
void set(TrainConfig& config, const Setting& setting, const std::string& written, const Parse& parse) {
  std::visit(
      [&](auto member) {
        const auto value = parse(config.*member);
        if (!value || !is_allowed(setting.option, *value)) {
          throw UsageError(
              fmt::format("{} {} is not {}", long_name(setting.option.name), written, allowed(setting.option, member)));
        }
        config.*member = *value;
      },
      setting.member);
}

// "local-steps" as "local_steps".
std::string with_underscores(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

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
  const std::string written = is_string(setting) ? "'" + given + "'" : given;
  set(config, setting, written, [&](const auto& old) { return parse_text<std::decay_t<decltype(old)>>(given); });
}

void set_from_json(TrainConfig& config, const Setting& setting, const Json& value) {
  set(config, setting, shown(value), [&](const auto& old) { return parse_value<std::decay_t<decltype(old)>>(value); });
}

void set_from_object(TrainConfig& config, const Json& object) {
  if (!object.is_object()) throw UsageError("not a JSON object {\"option\": value, ...}");
  std::vector<std::string> seen;
  for (const auto& [key, value] : object.items()) {
    const std::string name = with_underscores(key);
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
  const files::Bytes bytes = files::Input(path).read(kLongestFile + 1);
  if (bytes.size > kLongestFile) {
    throw UsageError(
        fmt::format("'{}' is longer than {} MiB: a config file holds a few lines of JSON", path, kLongestFile >> 20));
  }
  try {
    set_from_object(config, parse_json(bytes.text(), JsonComments::allowed));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}': {}", path, error.what()));
  }
}

Json value_of(const TrainConfig& config, const Setting& setting) {
  return std::visit([&](auto member) { return Json(config.*member); }, setting.member);
}

bool is_string(const Setting& setting) { return std::holds_alternative<std::string TrainConfig::*>(setting.member); }
bool is_flag(const Setting& setting) { return std::holds_alternative<bool TrainConfig::*>(setting.member); }

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
        fmt::format("--feedback {} cannot be combined with --local-steps {}: workers then exchange differences of "
                    "weights, which contain the learning rate already",
                    config.feedback, config.local_steps));
  }
  if (feedback.scale_by_lr && !optimiser->is_plain()) {
    throw UsageError(
        fmt::format("--feedback {} needs plain sgd, not --optimiser {}: the update contains the learning rate already",
                    config.feedback, config.optimiser));
  }
  if (feedback.kind == Feedback::Kind::momentum && optimiser->has_momentum()) {
    throw UsageError(
        fmt::format("--feedback {} cannot be combined with --optimiser {}: momentum would be applied twice",
                    config.feedback, config.optimiser));
  }
  if (config.measure_every != 0 && feedback.kind != Feedback::Kind::ef) {
    throw UsageError(
        fmt::format("--measure-every needs --feedback ef, not {}: xi and gamma are defined for it", config.feedback));
  }
  if (config.metrics == "-")
    throw UsageError("--metrics - is not allowed: standard output is for the report; name a file");
  if (config.resume && config.checkpoint_dir.empty())
    throw UsageError("--resume needs --checkpoint-dir DIR: where the checkpoints are");
}

WorkerConfig worker_config(const TrainConfig& config) {
  WorkerConfig worker;
  worker.sparsifier = config.sparsifier;
  worker.feedback = config.feedback;
  worker.exchange = config.exchange;
  worker.codec = config.codec;
  worker.downlink = config.downlink;
  worker.downlink_codec = config.downlink_codec;
  worker.downlink_feedback = config.downlink_feedback;
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
