// What a user sees while a training runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loop/config.h"
#include "loop/metrics.h"
#include "terminal.h"

namespace sparsewire::cli {

// Prints to standard error: first the configuration, unless there is a title; then the steps, as a bar that moves on a
// terminal, otherwise as a line from time to time.
class Progress {
 public:
  // `title` stands before each line of steps.
  Progress(const train::TrainConfig& config, std::string_view title);
  ~Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_step(const train::StepReport& report);
  // Prints a message on a line of its own.
  void log(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  // A part of a line. If not all fit, those with the largest rank become shorter first, then are left out.
  struct Piece {
    std::string text;
    int rank = 0;
    std::string shorter = {};
  };
  static Piece savings(double moved, double dense);
  std::vector<Piece> pieces(const train::StepReport& report) const;
  static std::string line(std::vector<Piece> pieces, std::size_t most);
  void show_config();

  const train::TrainConfig& config_;
  std::string title_;
  bool is_terminal_;
  StatusLine status_;
  bool is_config_shown_ = false;
  Clock::time_point began_ = Clock::now();
  Clock::time_point shown_;  // when a line was printed last
  std::uint64_t steps_ = 0;  // done by this program
  double moved_ = 0;         // bytes that one worker sent and received
  double dense_ = 0;         // bytes that it would have sent and received in a dense exchange
};

}  // namespace sparsewire::cli
