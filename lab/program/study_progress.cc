#include "study_progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "message.h"
#include "text/counted.h"

namespace sparsewire::cli {
namespace {

constexpr auto kBetweenStates = std::chrono::milliseconds(200);
constexpr const char* kRow = "{:<5} {:<23} {:>6} {:>7} {:>5} {:>9} {:>8} {:>8}\n";

// Of the column with what settings are chosen by.
std::string title_of(const study::Plan& plan) {
  if (plan.tuned_by == study::kValMetric) return plan.metric == "accuracy" ? "val acc." : "val " + plan.metric;
  return plan.tuned_by == study::kValLoss ? "val loss" : "loss";
}

std::string number_text(const study::Plan& plan, const study::Record& record) {
  if (record.phase == study::kPilot && record.lambda) return fmt::format("{:.3g}", *record.lambda);
  if (record.status != study::kFinished) return record.has_diverged() ? "diverged" : "none";
  const double number = record.measure(plan.tuned_by);
  return std::isnan(number) ? "-" : fmt::format("{:.5g}", number);
}

}  // namespace

StudyProgress::StudyProgress(const study::Plan& plan, bool is_quiet)
    : plan_(plan), is_quiet_(is_quiet), status_(!is_quiet && ::isatty(STDERR_FILENO) == 1) {}

void StudyProgress::on_phase(const std::string& name, const study::Work& left) {
  say_what_was_there();
  phase_ = name;
  left_ = left;
  finished_steps_ = steps_;
  has_header_ = false;
}

void StudyProgress::on_note(const std::string& note) {
  if (!is_quiet_) status_.print(wrapped(printable(note) + '\n'));
}

void StudyProgress::say_what_was_there() {
  if (were_there_ > 0 && !is_quiet_) {
    status_.print(
        fmt::format("{}: {} {} there already\n", phase_, counted(were_there_, "run"), were_there_ == 1 ? "is" : "are"));
  }
  were_there_ = 0;
}

void StudyProgress::on_record(const study::Record& record, bool was_there) {
  const bool is_training = record.phase == study::kTune || record.phase == study::kJudge;
  const std::uint64_t planned = is_training ? record.config.steps : record.steps;
  left_.runs -= std::min<std::uint64_t>(left_.runs, 1);
  left_.steps -= std::min(left_.steps, planned);
  ++done_;
  if (was_there) {
    ++were_there_;
    return;
  }
  finished_steps_ += record.steps;
  say_what_was_there();
  if (is_quiet_) return;
  std::string lines;
  if (!has_header_) {
    const std::string number = phase_ == "pilots" ? "lambda" : title_of(plan_);
    lines = fmt::format(kRow, "", "method", "ratio", "lr", "seed", number, "bytes", "time");
  }
  has_header_ = true;
  const study::Cell& cell = record.cell;
  std::string name = plan_.methods[cell.method_index].name();
  for (const auto& [key, value] : cell.own) name += fmt::format(" {}={}", key, value);
  lines += fmt::format(kRow, record.phase, shortened(printable(name), 23), cell.ratio.empty() ? "-" : cell.ratio,
                       fmt::format("{:.3g}", cell.lr), record.seed, number_text(plan_, record),
                       in_units(static_cast<double>(record.bytes())), fmt::format("{:.1f} s", record.seconds));
  status_.print(lines);
  show();
}

void StudyProgress::on_steps(std::uint64_t steps) {
  steps_ = steps;
  if (Clock::now() - shown_ >= kBetweenStates) show();
}

void StudyProgress::show() {
  shown_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_ - began_).count();
  const std::uint64_t running = steps_ - std::min(steps_, finished_steps_);  // steps of runs that are not finished
  const std::uint64_t left = left_.steps - std::min(left_.steps, running);
  std::string time;
  if (steps_ > 0 && seconds > kFirstEstimate) {
    time = fmt::format(", {} left", duration(seconds * static_cast<double>(left) / static_cast<double>(steps_)));
  }
  status_.show(fmt::format("{} {}, {} of {} runs done{}", bar(done_, done_ + left_.runs), phase_, done_,
                           done_ + left_.runs, time));
}

}  // namespace sparsewire::cli
