// Everything that can be chosen about a training. One table names every option; the command line, config files, the
// effective configuration and the comparison with a checkpoint are all made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec.h"
#include "sparsewire/worker.h"

namespace sparsewire::train {

using Json = nlohmann::ordered_json;

struct TrainConfig {
  std::string problem = "mlp";
  std::string data;
  std::uint64_t workers = 0;  // 0: not said; four threads, or as many as mpirun started
  std::string sparsifier = "topk:ratio=0.01";
  std::string feedback = "ef";
  std::string exchange = "sharded";
  std::string downlink;
  std::string codec = "auto";
  std::string downlink_codec;
  std::string scope = "model";
  std::string optimiser = "sgd";
  double lr = 0.1;
  std::string schedule = "constant";
  double clip = 0;
  std::uint64_t local_steps = 1;
  std::uint64_t steps = 1000;
  std::uint64_t seed = 0;
  std::uint64_t eval_every = 100;
  std::uint64_t check_every = 100;
  std::string checkpoint_dir;
  std::uint64_t checkpoint_every = 100;
  std::uint64_t keep = 2;
  bool resume = false;
  std::string metrics;
  std::string json;
  double deadline = 300;
  std::string transport = "threads";
  bool quiet = false;
};

struct Option {
  std::string_view name;  // as in files and reports: local_steps. On the command line: --local-steps
  std::string_view type;  // of what is given, for people; empty: a switch
  std::string_view help;
  // Whether a resumed training may have another one.
  bool may_change = false;
  Range range = {};                          // of a number
  std::vector<std::string_view> words = {};  // that are allowed, if only some are
};

// An option and where it is kept: one of std::string, std::uint64_t, double, bool.
struct Setting {
  Option option;
  std::string TrainConfig::*string = nullptr;
  std::uint64_t TrainConfig::*integer = nullptr;
  double TrainConfig::*number = nullptr;
  bool TrainConfig::*flag = nullptr;
};
const std::vector<Setting>& settings();

// "local_steps" as "--local-steps".
std::string long_name(std::string_view name);

// Sets one option from the text of the command line, or from JSON. Throws UsageError with the option, the value and
// what is allowed.
void set_from_text(TrainConfig& config, const Setting& setting, const std::string& text);
void set_from_json(TrainConfig& config, const Setting& setting, const Json& value);

// Sets what a JSON object says: each option by its long name, without the dashes in front; those inside may be
// underscores. Throws UsageError for anything else.
void set_from_object(TrainConfig& config, const Json& object);
// Likewise from a file, which may have comments. Throws UsageError, with its name.
void set_from_file(TrainConfig& config, const std::string& path);

Json to_json(const TrainConfig& config);
// Of one option, as in to_json().
Json value_of(const TrainConfig& config, const Setting& setting);
// In one line; what is not UTF-8 is replaced.
std::string shown(const Json& value);

// Refuses what cannot go together. Throws UsageError.
void check(const TrainConfig& config);

WorkerConfig worker_config(const TrainConfig& config);

// What differs between two configurations and must not when a training goes on: `--seed was 1 and is 2`, for each
// option; empty if nothing does. `before` is that of a checkpoint.
std::string difference(const TrainConfig& before, const TrainConfig& now);

}  // namespace sparsewire::train
