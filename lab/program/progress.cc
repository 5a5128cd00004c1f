#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <utility>

#include "message.h"
#include "settings.h"
#include "terminal.h"
#include "text/counted.h"

namespace sparsewire::cli {
namespace {

constexpr auto kBetweenBars = std::chrono::milliseconds(100);
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr std::size_t kAnyLength = 1000;
constexpr auto kBetweenEvaluations = std::chrono::seconds(1);
// "topk" of "topk:ratio=0.01".
std::string name_of(const std::string& spec) { return spec.substr(0, spec.find(':')); }

// Whether --exchange dense takes the values of a codec.
bool can_be_added(const std::string& codec) {
  const std::string key = "values=";
  const std::size_t at = codec.find(key);
  if (at == std::string::npos) return true;
  const std::string values = codec.substr(at + key.size(), codec.find(',', at) - at - key.size());
  return values == "f32" || values == "bf16";
}

// "12.5 steps/s", "3,030 steps/s"
std::string speed(double steps_per_second) {
  if (steps_per_second < 999.5) return fmt::format("{:.3g} steps/s", steps_per_second);
  return grouped(static_cast<std::uint64_t>(std::llround(steps_per_second))) + " steps/s";
}

}  // namespace

Progress::Progress(const train::TrainConfig& config, std::string_view title)
    : config_(config),
      title_(title),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      status_(is_terminal_),
      shown_(began_) {}

// "1/8.6 of dense (546 kB less per worker)": bytes compared with dense exchanges.
Progress::Piece Progress::savings(double moved, double dense) {
  constexpr double kSame = 0.02;
  constexpr int kRank = 4;
  if (std::abs(moved / dense - 1) < kSame) return {"as many bytes as dense", kRank, "as dense"};
  if (moved > dense) return {fmt::format("{:.1f} times dense", moved / dense), kRank};
  const std::string share = fmt::format("1/{:.1f} of dense", dense / moved);
  return {fmt::format("{} ({} less per worker)", share, in_units(dense - moved)), kRank, share};
}

// Steps, time left, loss of the last batches and of an evaluation; then speed and bytes.
std::vector<Progress::Piece> Progress::pieces(const train::StepReport& report) const {
  std::vector<Piece> all{
      {fmt::format("{}{} {}/{}", title_, config_.local_steps > 1 ? "exchange" : "step", report.step, config_.steps),
       0}};
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (report.step < config_.steps && seconds > kFirstEstimate) {
    const double left = seconds / static_cast<double>(steps_) * static_cast<double>(config_.steps - report.step);
    all.push_back({duration(left) + " left", 1});
  }
  all.push_back({fmt::format("batch loss {:.5g}", report.loss), 2});
  if (report.evaluation) {
    for (const train::Measurement& one : report.evaluation->numbers) {
      all.push_back({fmt::format("{} {:.4g}", train::in_words(one.name), one.value), 3});
    }
  }
  if (seconds > 0) all.push_back({speed(static_cast<double>(steps_) / seconds), 5});
  if (dense_ > 0 && moved_ > 0) all.push_back(savings(moved_, dense_));
  return all;
}

// The most important pieces that fit into so many letters, in their order.
std::string Progress::line(std::vector<Piece> pieces, std::size_t most) {
  const auto length = [&] {
    return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                           [](std::size_t sum, const Piece& one) { return sum + one.text.size() + 2; });
  };
  while (pieces.size() > 1 && length() > most + 2) {
    // Of equal ones the last.
    const auto least = std::max_element(pieces.rbegin(), pieces.rend(),
                                        [](const Piece& a, const Piece& b) { return a.rank < b.rank; });
    if (least->shorter.empty()) {
      pieces.erase(std::next(least).base());
    } else {
      least->text = std::exchange(least->shorter, {});
    }
  }
  std::string text;
  for (const Piece& one : pieces) text += (text.empty() ? "" : "  ") + one.text;
  return text;
}

// Not before all options have turned out to be right.
void Progress::show_config() {
  if (!config_.quiet && title_.empty() && !is_config_shown_) {
    const std::string line = printable(one_line(config_));
    std::fprintf(stderr, "%s\n", (is_terminal_ ? wrapped(line) : line).c_str());
    const bool is_dense = name_of(config_.sparsifier) == "dense";
    const std::string exchange = name_of(config_.exchange);
    const bool could_be_dense = exchange != "dense" && exchange != "auto" && config_.downlink.empty();
    if (is_dense && could_be_dense && config_.workers > 1 && can_be_added(config_.codec)) {
      complain(
          fmt::format("--exchange {} is made for sparse vectors: for --sparsifier dense, --exchange dense is faster",
                      config_.exchange));
    }
    if (exchange == "dense" && !is_dense) {
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
  // That is after each step of the optimiser.
  dense_ +=
      2 * static_cast<double>(stats.dense_bytes) * (workers - 1) / workers * static_cast<double>(config_.local_steps);

  const Clock::time_point now = Clock::now();
  const bool is_last = report.step == config_.steps;
  if (is_terminal_) {
    if (now - shown_ < kBetweenBars && !is_last) return;
    const std::string filled = bar(report.step, config_.steps);
    const std::size_t room = columns() - 1;
    const std::size_t rest = room > filled.size() ? room - filled.size() - 1 : 0;
    status_.show(filled + ' ' + line(pieces(report), rest));
  } else {
    if (now - shown_ < (report.evaluation ? kBetweenEvaluations : kBetweenLines) && !is_last) return;
    std::fprintf(stderr, "%s\n", line(pieces(report), kAnyLength).c_str());
    std::fflush(stderr);
  }
  shown_ = now;
}

void Progress::log(const std::string& message) {
  show_config();
  status_.end();
  complain(message);
}

}  // namespace sparsewire::cli
