#include "loop/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "files/input.h"
#include "loop/optimiser.h"
#include "loop/schedule.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "text/list.h"
#include "text/number.h"

namespace sparsewire::train {
namespace {

constexpr double kMostSteps = 1e15;  // counted exactly by a double, and by JSON
constexpr Range kSteps{.min = 0, .max = kMostSteps};
constexpr Range kPositive{.min = 0, .max = 3e38, .above_min = true};
constexpr MayChange kFixed = MayChange::no;
constexpr MayChange kMayChange = MayChange::freely;
constexpr MayChange kOnRequest = MayChange::on_request;
constexpr std::uint64_t kLongestFile = 1 << 20;  // of a config file, in bytes: a device or a wrong file shows early

std::vector<Setting> make_settings() {
  using C = TrainConfig;
  return {
      {{"problem", "SPEC", "What is trained; 'sparsewire list' shows all"}, &C::problem},
      // A checkpoint knows the contents of the data, so their name may change.
      {{"data", "FILE", "Data for problems that take them (logreg)", kMayChange}, &C::data},
      {{"test_data", "FILE", "Data that are only evaluated on, in the format of --data", kMayChange}, &C::test_data},
      {{"data_dir", "DIR", "The folder of the data sets (default: SPARSEWIRE_DATA); 'sparsewire data' shows them",
        kMayChange},
       &C::data_dir},
      {{"device", "WORD", "Where deep networks compute: cpu, or cuda (a GPU)", kMayChange, {}, {"cpu", "cuda"}},
       &C::device},
      {{"tf32",
        "WORD",
        "Convolutions on a GPU may round their inputs to TF32, as PyTorch's do: on or off",
        kMayChange,
        {},
        {"on", "off"}},
       &C::tf32},
      {{"validation",
        "X",
        "Share of the training data that is held back, drawn by the seed, and evaluated on; 0: none",
        kFixed,
        {.min = 0, .max = 1, .below_max = true}},
       &C::validation},
      {{"split", "SPEC",
        "Who trains with which samples: all, round_robin, iid, shards, dirichlet (default: iid for deep networks, "
        "round_robin for mlp and for full batches, all for others)",
        MayChange::with_workers},
       &C::split},
      {{"workers", "N", "Number of workers", kMayChange, {.min = 1, .max = 1024}}, &C::workers},
      {{"worker_weights", "LIST",
        "How much each worker counts: 1,2,1, or size for as much as it has samples (default: all the same)",
        MayChange::with_workers},
       &C::worker_weights},
      {{"sparsifier", "SPEC", "Which entries of a gradient are sent", kOnRequest}, &C::sparsifier},
      {{"feedback", "SPEC", "What happens to entries that are not sent: ef (kept for later), none or momentum",
        kOnRequest},
       &C::feedback},
      {{"exchange", "SPEC",
        "Who sends to whom: dense, allgather, server, sharded or auto. dense moves whole vectors, so a sparsifier "
        "saves nothing there",
        kFixed},
       &C::exchange},
      {{"downlink", "SPEC", "Sparsifier for the servers' answers (default: none, all entries are sent)", kOnRequest},
       &C::downlink},
      {{"codec", "SPEC", "How entries are encoded", kOnRequest}, &C::codec},
      {{"downlink_codec", "SPEC", "How the servers' answers are encoded (default: as --codec)", kOnRequest},
       &C::downlink_codec},
      {{"downlink_feedback",
        "WORD",
        "What happens to entries that servers do not send: ef (kept for later) or none (dropped)",
        kFixed,
        {},
        {"ef", "none"}},
       &C::downlink_feedback},
      {{"scope", "WORD", "What a ratio applies to: model, or each layer", kFixed, {}, {"model", "layer"}}, &C::scope},
      {{"average",
        "WORD",
        "What an entry's sum is divided by: all workers, or its senders (for --local-steps)",
        kFixed,
        {},
        {"all", "senders"}},
       &C::average},
      {{"optimiser", "SPEC", "How an update changes the weights: sgd, adam or adamw"}, &C::optimiser},
      {{"lr", "X", "Learning rate", kOnRequest, kPositive}, &C::lr},
      {{"schedule", "SPEC", "How the learning rate changes: constant, step, cosine or inverse", kOnRequest},
       &C::schedule},
      {{"clip", "X", "Clip each worker's gradient to this norm; 0: do not clip", kOnRequest, {.min = 0, .max = 3e38}},
       &C::clip},
      {{"local_steps", "N", "Optimiser steps of a worker between two exchanges", kFixed, {.min = 1, .max = 1e6}},
       &C::local_steps},
      {{"outer_lr", "X", "With local steps: factor of the update of an exchange", kOnRequest, kPositive}, &C::outer_lr},
      {{"outer_momentum",
        "X",
        "With local steps: Nesterov momentum of those updates; 0: none",
        kFixed,
        {.min = 0, .max = 1, .below_max = true}},
       &C::outer_momentum},
      {{"steps", "N", "Number of exchanges", kMayChange, kSteps}, &C::steps},
      // A checkpoint has its own weights.
      {{"init_weights", "FILE.npy", "Start from these weights, as --save-weights wrote them", kMayChange},
       &C::init_weights},
      {{"save_weights", "FILE.npy", "Write the weights at the end", kMayChange}, &C::save_weights},
      {{"seed", "N", "Random seed", kFixed, {.min = 0, .max = kMostSteps}}, &C::seed},
      {{"eval_every", "N", "Steps between two evaluations; 0: only at the end", kMayChange, kSteps}, &C::eval_every},
      {{"eval_train", "", "Evaluate on the training data too, where other data are held back", kMayChange},
       &C::eval_train},
      {{"measure_every",
        "N",
        "Steps between two measurements of what compression loses (xi and gamma in the metrics file; "
        "docs/guides/training.md); "
        "each costs two dense steps; 0: none",
        kMayChange,
        kSteps,
        {},
        "metrics"},
       &C::measure_every},
      {{"check_every", "N", "Steps between two checks that all workers have the same update; 0: never", kMayChange,
        kSteps},
       &C::check_every},
      {{"checkpoint_dir", "DIR", "Folder for checkpoints (default: none are written)", kMayChange}, &C::checkpoint_dir},
      {{"checkpoint_every",
        "N",
        "Steps between two checkpoints; 0: only at the end",
        kMayChange,
        kSteps,
        {},
        "checkpoint_dir"},
       &C::checkpoint_every},
      {{"keep", "N", "Number of checkpoints to keep", kMayChange, {.min = 1, .max = 1e6}, {}, "checkpoint_dir"},
       &C::keep},
      {{"resume", "", "Continue from the newest checkpoint; start at step 0 if there is none", kMayChange}, &C::resume},
      {{"change", "NAMES",
        "Options that may differ from those of the checkpoint: sparsifier,lr; from here on the new ones apply",
        kMayChange},
       &C::change},
      {{"metrics", "FILE", "Write a line of JSON at each evaluation; docs/guides/training.md explains its keys",
        kMayChange},
       &C::metrics},
      {{"metrics_every_step", "", "Write a line for each step, not only at evaluations", kMayChange, {}, {}, "metrics"},
       &C::metrics_every_step},
      {{"json", "FILE", "Also write a report to FILE; - prints it instead of the text", kMayChange}, &C::json},
      {{"report", "FILE.html", "Write a page with charts of the training at its end", kMayChange}, &C::report},
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

bool can_change(const Setting& setting) {
  return setting.option.may_change == MayChange::on_request || setting.option.may_change == MayChange::freely;
}

// The options that --change names, in the order of the table. Throws UsageError.
std::vector<const Setting*> names_to_change(const TrainConfig& config) {
  std::vector<std::string> names;
  if (!config.change.empty()) {
    for (const std::string& name : split_list(config.change, ',')) names.push_back(with_underscores(name));
  }
  std::vector<const Setting*> found;
  for (const Setting& setting : settings()) {
    const auto name = std::find(names.begin(), names.end(), setting.option.name);
    if (name == names.end() || !can_change(setting)) continue;
    found.push_back(&setting);
    std::erase(names, setting.option.name);
  }
  if (names.empty()) return found;
  std::string known;
  for (const Setting& setting : settings()) {
    if (setting.option.may_change != MayChange::on_request && setting.option.name != "steps") continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", setting.option.name);
  }
  throw UsageError(fmt::format("--change: '{}' is not an option that can change in mid-training; there are {}",
                               names.front(), known));
}

bool is_same(const TrainConfig& before, const TrainConfig& now, const Setting& setting) {
  // As text: what is not UTF-8 was saved with replacements.
  return shown(value_of(before, setting)) == shown(value_of(now, setting));
}

bool is_report(const Json& json) {
  return json.is_object() && json.contains("config") && json.at("config").is_object();
}

// What the report says about its run stays as it is: another run must not write over it.
void set_from_report(TrainConfig& config, const Json& report) {
  Json given = report.at("config");
  for (const char* name : {"json", "metrics", "report", "save_weights", "checkpoint_dir", "resume", "change"})
    given.erase(name);
  for (const char* name : {"sparsifier", "downlink"}) {
    if (report.contains(name)) given[name] = report.at(name);
  }
  set_from_object(config, given);
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
    const Json json = parse_json(bytes.text(), JsonComments::allowed);
    if (json.is_object() && (json.contains("tune_seeds") || json.contains("plan"))) {
      throw UsageError("is of a study, which is given by its command line; runs/*/config.json are those of its runs");
    }
    is_report(json) ? set_from_report(config, json) : set_from_object(config, json);
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
  if (config.local_steps == 1 && (config.outer_lr != 1 || config.outer_momentum != 0)) {
    throw UsageError("--outer-lr and --outer-momentum are for the exchanges between local steps: add --local-steps");
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
  if (config.measure_every != 0 && config.average != "all") {
    throw UsageError("--measure-every needs --average all: xi and gamma are defined for the sum over all workers");
  }
  if (config.report == "-") {
    throw UsageError("--report - is not allowed: standard output is for the result; name a file");
  }
  if (config.metrics == "-")
    throw UsageError("--metrics - is not allowed: standard output is for the report; name a file");
  if (config.save_weights == "-")
    throw UsageError("--save-weights - is not allowed: standard output is for the report; name a file");
  names_to_change(config);
  if (!config.change.empty() && !config.resume)
    throw UsageError("--change is for a training that is continued: add --resume");
  if (config.resume && config.checkpoint_dir.empty())
    throw UsageError("--resume needs --checkpoint-dir DIR: where the checkpoints are");
}

ProblemPlace problem_place(const TrainConfig& config) {
  return {.workers = static_cast<int>(config.workers),
          .seed = config.seed,
          .data = config.data,
          .test_data = config.test_data,
          .data_dir = config.data_dir,
          .validation = config.validation,
          .split = config.split,
          .device = config.device,
          .has_tf32 = config.tf32 == "on",
          .has_weights = !config.worker_weights.empty()};
}

std::string outer_optimiser(const TrainConfig& config) {
  if (config.local_steps == 1) return "";
  return config.outer_momentum == 0 ? "sgd" : fmt::format("sgd:momentum={},nesterov=true", config.outer_momentum);
}

WorkerConfig worker_config(const TrainConfig& config, double weight) {
  WorkerConfig worker;
  worker.sparsifier = config.sparsifier;
  worker.feedback = config.feedback;
  worker.exchange = config.exchange;
  worker.codec = config.codec;
  worker.downlink = config.downlink;
  worker.downlink_codec = config.downlink_codec;
  worker.downlink_feedback = config.downlink_feedback;
  worker.scope = config.scope == "layer" ? Scope::layer : Scope::model;
  worker.average = config.average == "senders" ? Average::senders : Average::all;
  worker.weight = weight;
  worker.seed = config.seed;
  worker.check_every = config.check_every;
  return worker;
}

std::string difference(const TrainConfig& before, const TrainConfig& now) {
  const std::vector<const Setting*> asked = names_to_change(now);
  std::string all;
  std::string names;  // for --change
  bool can_change_all = true;
  for (const Setting& setting : settings()) {
    const MayChange may_change = setting.option.may_change;
    if (may_change == MayChange::freely || is_same(before, now, setting)) continue;
    if (may_change == MayChange::with_workers && before.workers != now.workers) continue;
    if (std::find(asked.begin(), asked.end(), &setting) != asked.end()) continue;
    all += fmt::format("{}{} was {} and is {}", all.empty() ? "" : ", ", long_name(setting.option.name),
                       shown(value_of(before, setting)), shown(value_of(now, setting)));
    can_change_all = can_change_all && can_change(setting);
    names += fmt::format("{}{}", names.empty() ? "" : ",", setting.option.name);
  }
  if (all.empty() || !can_change_all) return all;
  for (const Setting* setting : asked) names += fmt::format(",{}", setting->option.name);
  return all + fmt::format("; to change this in mid-training, add --change {}", names);
}

Json changes(const TrainConfig& before, const TrainConfig& now) {
  Json all = Json::object();
  for (const Setting* setting : names_to_change(now)) {
    if (is_same(before, now, *setting)) continue;
    all[std::string(setting->option.name)] = {{"from", value_of(before, *setting)}, {"to", value_of(now, *setting)}};
  }
  return all;
}

}  // namespace sparsewire::train
