// What a user sees while a study runs: a line for each finished run, and on a terminal how long it will still take.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "study/study.h"
#include "terminal.h"

namespace sparsewire::cli {

// Prints to standard error, at most 80 columns.
class StudyProgress : public study::StudyWatcher {
 public:
  StudyProgress(const study::Plan& plan, bool is_quiet);
  ~StudyProgress() override { say_what_was_there(); }
  StudyProgress(const StudyProgress&) = delete;
  StudyProgress& operator=(const StudyProgress&) = delete;

  void on_phase(const std::string& name, const study::Work& left) override;
  void on_record(const study::Record& record, bool was_there) override;
  void on_steps(std::uint64_t steps) override;
  void on_note(const std::string& note) override;

  std::uint64_t runs_done() const noexcept { return done_; }
  std::uint64_t runs() const noexcept { return done_ + left_.runs; }

 private:
  using Clock = std::chrono::steady_clock;
  void say_what_was_there();
  void show();

  const study::Plan& plan_;
  bool is_quiet_;
  StatusLine status_;
  std::string phase_;
  study::Work left_;              // runs that are not finished, and their steps
  std::uint64_t done_ = 0;        // runs
  std::uint64_t were_there_ = 0;  // of them, in this phase, and not said yet
  bool has_header_ = false;
  std::uint64_t steps_ = 0;           // of this program
  std::uint64_t finished_steps_ = 0;  // of its runs that are finished
  Clock::time_point began_ = Clock::now();
  Clock::time_point shown_;
};

}  // namespace sparsewire::cli
