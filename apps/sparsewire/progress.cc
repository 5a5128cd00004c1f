// What people see while a training runs.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "training.h"

namespace sparsewire::cli {
namespace {

constexpr auto kBetweenBars = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr auto kBetweenEvaluations = std::chrono::seconds(1);
constexpr std::uint64_t kBarWidth = 24;

std::string bar(std::uint64_t done, std::uint64_t all) {
  const auto filled = static_cast<std::size_t>(all == 0 ? 0 : done * kBarWidth / all);
  return '[' + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + ']';
}

// Of the terminal: a line that wraps could not be written over.
std::size_t columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(const train::TrainConfig& config, std::string_view title)
    : config_(config), title_(title), is_terminal_(::isatty(STDERR_FILENO) == 1), shown_(began_) {}

Progress::~Progress() { clear_bar(); }

// Steps, loss, what was evaluated; then what the exchange costs a worker.
std::string Progress::line(const train::StepReport& report) const {
  std::string text = fmt::format("{}step {}/{}  loss {:.5g}", title_, report.step, config_.steps, report.loss);
  if (report.evaluation) {
    text += fmt::format("  test loss {:.5g}", report.evaluation->loss);
    if (!report.metric.empty()) text += fmt::format("  {} {:.4g}", report.metric, report.evaluation->metric);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (seconds > 0) text += fmt::format("  {:.3g} steps/s", static_cast<double>(steps_) / seconds);
  if (dense_ > 0 && moved_ > 0) {
    text += fmt::format("  1/{:.1f} of dense, {} saved for each", dense_ / moved_,
                        in_units(std::max(0.0, dense_ - moved_)));
  }
  return text;
}

// Once everything given has turned out to be right.
void Progress::show_config() {
  if (!config_.quiet && title_.empty() && !is_config_shown_) std::fprintf(stderr, "%s\n", one_line(config_).c_str());
  is_config_shown_ = true;
}

void Progress::on_step(const train::StepReport& report) {
  if (config_.quiet) return;
  show_config();
  ++steps_;
  // A server moves what all its workers do, and nothing of its own.
  const auto workers = static_cast<double>(config_.workers);
  const StepStats& stats = report.stats;
  moved_ += std::max(static_cast<double>(stats.bytes_up + stats.bytes_down),
                     static_cast<double>(stats.bytes_served) / workers);
  dense_ += 2 * static_cast<double>(stats.dense_bytes) * (workers - 1) / workers;

  const Clock::time_point now = Clock::now();
  const bool is_last = report.step == config_.steps;
  if (is_terminal_) {
    if (now - shown_ < kBetweenBars && !is_last) return;
    const std::string text = bar(report.step, config_.steps) + ' ' + line(report);
    std::fprintf(stderr, "\r\x1b[K%s", text.substr(0, columns() - 1).c_str());
    bar_shown_ = true;
  } else {
    if (now - shown_ < (report.evaluation ? kBetweenEvaluations : kBetweenLines) && !is_last) return;
    std::fprintf(stderr, "%s\n", line(report).c_str());
  }
  std::fflush(stderr);
  shown_ = now;
}

void Progress::log(const std::string& message) {
  show_config();
  clear_bar();
  std::fprintf(stderr, "sparsewire: %s\n", message.c_str());
}

void Progress::clear_bar() {
  if (bar_shown_) std::fprintf(stderr, "\n");
  bar_shown_ = false;
}

}  // namespace sparsewire::cli
