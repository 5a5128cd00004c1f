// What `train` and `compare` have in common: options from the table of train/config.h, and what people see of a run.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "options.h"
#include "train/config.h"
#include "train/loop.h"
#include "train/metrics.h"

namespace sparsewire::cli {

// Options as they were given, to be set in this order: defaults, config file, command line.
struct GivenSettings {
  std::map<std::string, std::string> texts;  // by name
  std::optional<std::string> config_file;

  bool has(const std::string& name) const { return texts.contains(name); }
  // Throws UsageError.
  void apply(train::TrainConfig& config) const;
};

// Adds every option of the table but those in `without`; `defaults` are shown. `given` must live as long
// as the command.
void add_settings(CLI::App& command, const train::TrainConfig& defaults,
                  std::initializer_list<std::string_view> without, GivenSettings& given);

// Throws UsageError if mpirun started several of this program, which know nothing of each other.
void check_alone(std::string_view advice);

std::chrono::milliseconds deadline_of(const train::TrainConfig& config);

// One line: "problem=mlp workers=4 ...", what is empty left out.
std::string one_line(const train::TrainConfig& config);

// The configuration once, unless there is a title; then steps, on standard error: a bar that moves on a terminal,
// otherwise a line every so often.
class Progress {
 public:
  Progress(const train::TrainConfig& config, std::string_view title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(const train::StepReport& report);
  // A line of its own, beside the bar.
  void log(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(const train::StepReport& report) const;
  void show_config();
  void clear_bar();

  const train::TrainConfig& config_;
  std::string title_;
  bool is_terminal_;
  bool bar_shown_ = false;
  bool is_config_shown_ = false;
  Clock::time_point began_ = Clock::now();
  Clock::time_point shown_;
  std::uint64_t steps_ = 0;
  double moved_ = 0;  // bytes of one worker, and what a dense exchange would have moved
  double dense_ = 0;
};

// 1234567 as "1.2 MB".
std::string in_units(double bytes);

// "0badcafe"
std::string hex(std::uint32_t number);

}  // namespace sparsewire::cli
