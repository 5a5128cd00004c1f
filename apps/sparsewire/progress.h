// What a user sees while a training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "train/config.h"
#include "train/metrics.h"

namespace sparsewire::cli {

// Prints to standard error: first the configuration, unless there is a title; then the steps, as a bar that moves on a
// terminal, otherwise as a line from time to time.
class Progress {
 public:
  // `title` stands before each line of steps.
  Progress(const train::TrainConfig& config, std::string_view title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(const train::StepReport& report);
  // Prints a message on a line of its own.
  void log(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(const train::StepReport& report) const;
  void show_config();
  void end_bar();

  const train::TrainConfig& config_;
  std::string title_;
  bool is_terminal_;
  bool is_bar_shown_ = false;
  bool is_config_shown_ = false;
  Clock::time_point began_ = Clock::now();
  Clock::time_point shown_;  // when a line was printed last
  std::uint64_t steps_ = 0;  // done by this program
  double moved_ = 0;         // bytes that one worker sent and received
  double dense_ = 0;         // bytes that it would have sent and received in a dense exchange
};

}  // namespace sparsewire::cli
