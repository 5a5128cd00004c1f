#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "message.h"
#include "settings.h"
#include "terminal.h"

namespace sparsewire::cli {
namespace {

constexpr auto kBetweenBars = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr auto kBetweenEvaluations = std::chrono::seconds(1);
// "topk" of "topk:ratio=0.01".
std::string name_of(const std::string& spec) { return spec.substr(0, spec.find(':')); }

// "1/8.6 of dense (546 kB less per worker)": bytes compared with a dense exchange.
std::string savings(double moved, double dense) {
  constexpr double kSame = 0.02;
  if (std::abs(moved / dense - 1) < kSame) return "as many bytes as dense";
  if (moved > dense) return fmt::format("{:.1f} times dense", moved / dense);
  return fmt::format("1/{:.1f} of dense ({} less per worker)", dense / moved, in_units(dense - moved));
}

}  // namespace

Progress::Progress(const train::TrainConfig& config, std::string_view title)
    : config_(config), title_(title), is_terminal_(::isatty(STDERR_FILENO) == 1), shown_(began_) {}

Progress::~Progress() { end_bar(); }

// Steps, loss of the last batches and of an evaluation; then speed and bytes.
std::string Progress::line(const train::StepReport& report) const {
  std::string text = fmt::format("{}step {}/{}  batch loss {:.5g}", title_, report.step, config_.steps, report.loss);
  if (report.evaluation) {
    for (const train::Measurement& one : report.evaluation->numbers) {
      text += fmt::format("  {} {:.4g}", train::in_words(one.name), one.value);
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (seconds > 0) text += fmt::format("  {:.3g} steps/s", static_cast<double>(steps_) / seconds);
  if (dense_ > 0 && moved_ > 0) text += "  " + savings(moved_, dense_);
  return text;
}

// Not before all options have turned out to be right.
void Progress::show_config() {
  if (!config_.quiet && title_.empty() && !is_config_shown_) {
    std::fprintf(stderr, "%s\n", printable(one_line(config_)).c_str());
    if (name_of(config_.exchange) == "dense" && name_of(config_.sparsifier) != "dense") {
      complain(
          fmt::format("--exchange dense moves whole vectors, so --sparsifier {} saves no bytes; for training without "
                      "compression add --sparsifier dense",
                      config_.sparsifier));
    }
  }
  is_config_shown_ = true;
}

void Progress::on_step(const train::StepReport& report) {
  if (config_.quiet) return;
  show_config();
  ++steps_;
  // With `server`, rank 0 sends nothing as a worker; as the server it moves what all workers do.
  const auto workers = static_cast<double>(config_.workers);
  const StepStats& stats = report.stats;
  const std::uint64_t trailers = stats.trailer_bytes_up + stats.trailer_bytes_down;
  moved_ += std::max(static_cast<double>(stats.bytes_up + stats.bytes_down + trailers),
                     static_cast<double>(stats.bytes_served + stats.trailer_bytes_served) / workers);
  dense_ += 2 * static_cast<double>(stats.dense_bytes) * (workers - 1) / workers;

  const Clock::time_point now = Clock::now();
  const bool is_last = report.step == config_.steps;
  if (is_terminal_) {
    if (now - shown_ < kBetweenBars && !is_last) return;
    const std::string text = bar(report.step, config_.steps) + ' ' + line(report);
    std::fprintf(stderr, "\r\x1b[K%s", text.substr(0, columns() - 1).c_str());
    is_bar_shown_ = true;
  } else {
    if (now - shown_ < (report.evaluation ? kBetweenEvaluations : kBetweenLines) && !is_last) return;
    std::fprintf(stderr, "%s\n", line(report).c_str());
  }
  std::fflush(stderr);
  shown_ = now;
}

void Progress::log(const std::string& message) {
  show_config();
  end_bar();
  complain(message);
}

void Progress::end_bar() {
  if (is_bar_shown_) std::fprintf(stderr, "\n");
  is_bar_shown_ = false;
}

}  // namespace sparsewire::cli
