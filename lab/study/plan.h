// What a study will do. It is written to plan.json before the first run, so that nothing can be chosen afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/config.h"
#include "problems/problem.h"
#include "sparsewire/layout.h"
#include "study/method.h"
#include "text/json.h"

namespace sparsewire::study {

using train::Json;

// Names of measures, in the plan and in summaries. A measure that a problem does not have is NaN in its records.
inline constexpr const char* kTestLoss = "test_loss";
inline constexpr const char* kValLoss = "val_loss";
inline constexpr const char* kTrainLoss = "train_loss";
inline constexpr const char* kMetric = "metric";         // on test data, else validation data, else training data
inline constexpr const char* kValMetric = "val_metric";  // on validation data; of a run's end only

// Tuning seeds come so far behind the first judging seed, so that both can be told apart at a glance.
inline constexpr std::uint64_t kTuneSeedsFrom = 1000;

// What a user asks for.
struct Request {
  std::vector<std::string> methods;
  std::vector<std::string> ratios;
  std::vector<double> lrs;
  std::uint64_t seeds = 5;
  std::uint64_t tune_seeds = 2;
  std::optional<std::string> baseline;  // name or spec of a method; default: dense, otherwise the first
  std::optional<std::string> primary;
  std::optional<std::string> tuned_by;
  std::optional<double> target;
  std::optional<std::uint64_t> budget_bytes;
  std::optional<std::uint64_t> tune_steps;  // of a tuning run; default: as many as of a judging run
  bool grow = false;
  train::TrainConfig config;  // common to all runs; its seed is the first judging seed
};

struct Plan {
  std::vector<Method> methods;
  std::vector<std::string> ratios;        // after merging, as given
  std::vector<double> lrs;                // ascending
  std::vector<std::uint64_t> seeds;       // for judging: config.seed, config.seed + 1, ...
  std::vector<std::uint64_t> tune_seeds;  // others; empty: nothing is tuned, every group has one cell
  std::size_t baseline = 0;               // index in methods
  // What methods are judged by: test_loss; val_loss without test data; train_loss if no data are held back; or metric.
  std::string primary;
  // What settings are chosen by: val_loss, or val_metric if that was asked for; train_loss without validation data.
  std::string tuned_by;
  std::string target_by;         // what the target is a value of: val_loss, or train_loss without validation data
  std::optional<double> target;  // if given; otherwise it is set on the tuning seeds
  std::optional<std::uint64_t> budget_bytes;
  std::optional<std::uint64_t> tune_steps;  // of a tuning run, if that is shorter
  bool grow = false;
  train::TrainConfig config;  // common to all runs
  std::string metric;         // what `metric` is: "accuracy", "distance"; empty: nothing
  std::uint64_t dim = 0;      // of the model
  Layout layout;
  std::string data;  // Problem::data_fingerprint(), test_fingerprint()
  std::string test_data;
  std::vector<float> initial_weights;  // of every run, with --init-weights; empty: those of the problem
  std::string init_weights;            // what they are: "131 weights, CRC-32C 0badcafe"; empty: there are none
  std::vector<Cell> cells;             // by method, ratio, own parameters, learning rate. --grow appends
  std::vector<std::string> notes;      // for the user: ratios that were merged, different learning rates, a given start
  // How messages call what plan.json has: "steps" is --steps, and --rounds in a reproduction.
  std::string (*option_name)(std::string_view key) = train::long_name;
};

// A method with a ratio: what is chosen for, and judged. In plan order.
struct Group {
  std::size_t method_index = 0;
  std::string ratio;  // empty if the method takes none

  bool operator==(const Group&) const = default;
};
std::vector<Group> groups(const Plan& plan);
inline bool is_of(const Cell& cell, const Group& group) {
  return cell.method_index == group.method_index && cell.ratio == group.ratio;
}

bool is_higher_better(const Plan& plan, std::string_view measure) noexcept;

// Which learning rates each method was given, in words, if they are not the same for all; otherwise empty. A method
// that had worse ones looks like a worse method.
std::string unequal_lrs(const Plan& plan);

// Throws UsageError: methods that are given twice, a ratio that is missing, ...
// `problem` is made from request.config.
Plan make_plan(const Request& request, const train::Problem& problem);

// Sets the entries that a worker sends. Throws UsageError for settings that cannot be.
void complete(const Plan& plan, Cell& cell);

// For plan.json and summary.json: no names of folders, nothing that differs when a study is resumed.
Json to_json(const Plan& plan);

// Which program made a study: {"sparsewire": version, "build": ..., "compiler": ..., "architecture": ...}. Part of the
// plan: other code may give other bits.
Json environment();

// Whether runs with different values of the option have different results. (The contents of data and weights count, not
// the names of their files.)
bool is_of_result(std::string_view option) noexcept;

// How the plan of a folder differs from this one: "--seeds was 5 and is 3; ..."; empty if it does not.
std::string difference(const Json& before, const Json& now,
                       std::string (*option_name)(std::string_view key) = train::long_name);

}  // namespace sparsewire::study
