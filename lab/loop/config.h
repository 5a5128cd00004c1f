// The options of a training. One table names them all; the command line, config files, the effective configuration in
// reports and the comparison with a checkpoint are made from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "problems/problem.h"
#include "sparsewire/spec.h"
#include "sparsewire/worker.h"
#include "text/json.h"

namespace sparsewire::train {

struct TrainConfig {
  std::string problem = "mlp";
  std::string data;
  std::string test_data;
  std::string data_dir;  // empty: SPARSEWIRE_DATA
  std::string device = "cpu";
  std::string tf32 = "on";
  double validation = 0;
  std::string split;           // empty: as the problem does
  std::uint64_t workers = 0;   // 0: not given; then four threads, or as many as mpirun started
  std::string worker_weights;  // empty: all count the same
  std::string sparsifier = "topk:ratio=0.01";
  std::string feedback = "ef";
  std::string exchange = "sharded";
  std::string downlink;
  std::string codec = "auto";
  std::string downlink_codec;
  std::string downlink_feedback = "ef";
  std::string scope = "model";
  std::string average = "all";
  std::string optimiser = "sgd";
  double lr = 0.1;
  std::string schedule = "constant";
  double clip = 0;
  std::uint64_t local_steps = 1;
  double outer_lr = 1;
  double outer_momentum = 0;
  std::uint64_t steps = 1000;
  std::string init_weights;
  std::string save_weights;
  std::uint64_t seed = 0;
  std::uint64_t eval_every = 100;
  bool eval_train = false;
  std::uint64_t measure_every = 0;
  std::uint64_t check_every = 100;
  std::string checkpoint_dir;
  std::uint64_t checkpoint_every = 100;
  std::uint64_t keep = 2;
  bool resume = false;
  std::string change;  // names of options, separated by commas
  std::string metrics;
  bool metrics_every_step = false;
  std::string json;
  std::string report;
  double deadline = 300;
  std::string transport = "threads";
  bool quiet = false;
};

// Whether a resumed training may have another value of an option than the one before.
enum class MayChange : std::uint8_t {
  no,
  with_workers,  // if the number of workers is another one
  on_request,    // if --change names it
  freely,
};

struct Option {
  std::string_view name;  // as in files and reports: local_steps. On the command line: --local-steps
  std::string_view type;  // of its value, for the help: "N"; empty for a flag
  std::string_view help;
  MayChange may_change = MayChange::no;      // whether a resumed training may have another value
  Range range = {};                          // of a number
  std::vector<std::string_view> words = {};  // the values that are allowed; empty: all
  std::string_view needs = {};               // the option without which it does nothing
};

// An option and the member that holds its value.
struct Setting {
  Option option;
  std::variant<std::string TrainConfig::*, std::uint64_t TrainConfig::*, double TrainConfig::*, bool TrainConfig::*>
      member;
};
const std::vector<Setting>& settings();

bool is_string(const Setting& setting);
bool is_flag(const Setting& setting);

// "local_steps" as "--local-steps".
std::string long_name(std::string_view name);

// Sets one option, from the command line or from JSON. Throws UsageError with the option, the value and what is
// allowed.
void set_from_text(TrainConfig& config, const Setting& setting, const std::string& text);
void set_from_json(TrainConfig& config, const Setting& setting, const Json& value);

// Sets all options that a JSON object has: by their long names, without the dashes in front; dashes inside may be
// underscores. Throws UsageError for anything else.
void set_from_object(TrainConfig& config, const Json& object);
// The same from a file of at most 1 MiB, which may have comments. The file may also be a report: an object whose
// `config` is such an object. Then options that say where the earlier run wrote, and which checkpoint it resumed, are
// left out; of a pilot's report, the measured sparsifier and downlink are taken too. Throws UsageError, with its name.
void set_from_file(TrainConfig& config, const std::string& path);

Json to_json(const TrainConfig& config);
// The value of one option, as in to_json().
Json value_of(const TrainConfig& config, const Setting& setting);

// Throws UsageError if options cannot be combined.
void check(const TrainConfig& config);

// What a problem depends on besides its spec. REQUIRES: config.workers is known.
ProblemPlace problem_place(const TrainConfig& config);

// What applies the updates between local steps: an optimiser's spec; empty without local steps.
std::string outer_optimiser(const TrainConfig& config);

WorkerConfig worker_config(const TrainConfig& config, double weight = 1);

// The options that differ and must not when a training is resumed: "--seed was 1 and is 2, --lr was ..."; empty if
// there are none. `before` is the configuration of a checkpoint. Says how to change them, if that is possible.
std::string difference(const TrainConfig& before, const TrainConfig& now);

// The options that --change names and that differ: {"lr": {"from": 0.1, "to": 0.01}, ...}.
Json changes(const TrainConfig& before, const TrainConfig& now);

}  // namespace sparsewire::train
