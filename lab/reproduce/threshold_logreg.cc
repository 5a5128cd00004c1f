// How many bits logistic regression needs to come close to its optimum, and the largest norm of its workers' memories:
// a constant threshold against Top-k in every round, and against Top-1 in every n-th.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021. 64 bits an entry, as they count;
// each worker has its own part of the data. The setting of each method is chosen on some seeds, by the fewest bits, and
// judged on others; each method has equally many settings. A run has come close when the mean gap of the last 50 rounds
// is small enough: the first single round would reward noise. Even so one setting may take six times the rounds with
// another seed, so methods are compared on equal seeds, and only what an interval shows counts.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reproduce/far_start.h"
#include "reproduce/rare_topk.h"
#include "reproduce/reproduction.h"
#include "reproduce/table.h"
#include "sparsewire/support/portable_math.h"
#include "study/statistics.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kBitsPerEntry = 64;
constexpr std::uint64_t kQuickRounds = 1000;  // with fewer nothing is judged
constexpr std::size_t kSmoothedOver = 50;     // rounds

// A method with one value of k, lambda, or the rounds between two messages.
struct Setting {
  std::string method;
  std::optional<std::uint64_t> k = {};
  std::optional<double> lambda = {};  // for lr*gradient, as the authors give it; that of the spec is for the gradient
  std::optional<std::uint64_t> every = {};

  std::string spec(double lr) const {
    if (every) return fmt::format("rare_topk:k={},every={}", *k, *every);
    if (k) return fmt::format("topk:k={}", *k);
    return lambda ? fmt::format("threshold:lambda={}", digits(*lambda / lr, 17)) : method;
  }
  std::string value() const {
    if (every) return fmt::format("every {}", *every);
    return k ? fmt::format("k={}", *k) : lambda ? fmt::format("lambda={}", digits(*lambda)) : "";
  }
};

struct Outcome {
  std::optional<double> rounds;  // until the gap was reached; nothing: never
  std::optional<double> bits;    // sent by a worker until then
  double peak = 0;               // largest ||e||^2 of the run, e the memory; a mean over the workers
};

// The first round at which the mean of the last 50 numbers is below a limit.
class FirstPassage {
 public:
  explicit FirstPassage(double limit) : limit_(limit) {}

  void see(std::uint64_t step, double number) {
    if (arrived_) return;
    last_.push_back(number);
    if (last_.size() > kSmoothedOver) last_.erase(last_.begin());
    const double sum = std::accumulate(last_.begin(), last_.end(), 0.0);
    if (last_.size() == kSmoothedOver && sum < limit_ * kSmoothedOver) arrived_ = step;
  }
  std::optional<std::uint64_t> arrived() const { return arrived_; }

 private:
  double limit_;
  std::vector<double> last_;
  std::optional<std::uint64_t> arrived_;
};

Outcome measure(const FarStart& context, const Setting& setting, std::uint64_t rounds, double gap) {
  FirstPassage passage(gap);
  const RoundTotals totals =
      run(context.plan(setting.spec(context.lr), rounds), *context.problem,
          [&](const Round& round) { passage.see(round.step, passage.arrived() ? 0 : context.gap_at(round.weights)); });
  Outcome outcome;
  outcome.peak = totals.peak();
  if (passage.arrived()) {
    outcome.rounds = static_cast<double>(*passage.arrived());
    outcome.bits = kBitsPerEntry * totals.entries_until(*passage.arrived());
  }
  return outcome;
}

// The scale for thresholds: the largest entry of the first lr*gradient, as a mean over the workers, rounded to 1, 2 or
// 5 times a power of ten.
double scale_of(const FarStart& context) {
  std::vector<double> gradient(context.start.size());
  double sum = 0;
  for (int worker = 0; worker < FarStart::kWorkers; ++worker) {
    context.problem->gradient_at(worker, 0, context.start, gradient);
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    sum += context.lr * largest / FarStart::kWorkers;
  }
  const double power = std::pow(10, std::floor(std::log10(sum)));
  const double lead = sum / power;
  return power * (lead < std::sqrt(2) ? 1 : lead < std::sqrt(10) ? 2 : lead < std::sqrt(50) ? 5 : 10);
}

// Equally many values for each method.
std::vector<Setting> settings_of(const Options& options, std::uint64_t dim, double scale) {
  using Counts = std::vector<std::uint64_t>;
  using Factors = std::vector<double>;
  const auto counts = options.by_size<Counts>({2, 5, 10}, {1, 2, 3, 5, 7, 10, 20}, {1, 2, 3, 5, 7, 10, 20, 30, 50});
  const auto factors =
      options.by_size<Factors>({2, 1, 0.5}, {5, 3, 2, 1, 0.7, 0.5, 0.2}, {10, 5, 3, 2, 1, 0.7, 0.5, 0.2, 0.1});
  const auto pauses = options.by_size<Counts>({2, 4, 8}, {2, 3, 4, 6, 8, 12, 16}, {2, 3, 4, 5, 6, 8, 12, 16, 24});
  std::vector<Setting> settings{{.method = "dense"}};
  for (const std::uint64_t k : counts) settings.push_back({.method = "topk", .k = std::min(k, dim)});
  for (const std::uint64_t every : pauses) settings.push_back({.method = "rare_top1", .k = 1, .every = every});
  for (const double factor : factors) settings.push_back({.method = "threshold", .lambda = factor * scale});
  return settings;
}

struct Row {
  Setting setting;
  std::vector<Outcome> outcomes = {};  // by seed

  // "380 to 2445"; nothing if a seed never reached the gap.
  std::string range_of_rounds() const {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const Outcome& outcome : outcomes) {
      if (!outcome.rounds) return "";
      least = std::min(least, *outcome.rounds);
      most = std::max(most, *outcome.rounds);
    }
    return least < most ? fmt::format("{:.0f} to {:.0f}", least, most) : "";
  }
  std::optional<double> mean_bits() const { return mean_of(&Outcome::bits); }
  std::optional<double> mean_rounds() const { return mean_of(&Outcome::rounds); }
  double mean_peak() const {
    double sum = 0;
    for (const Outcome& outcome : outcomes) sum += outcome.peak;
    return sum / static_cast<double>(outcomes.size());
  }

 private:
  // Nothing if one of the seeds never reached the gap.
  std::optional<double> mean_of(std::optional<double> Outcome::*number) const {
    double sum = 0;
    for (const Outcome& outcome : outcomes) {
      if (!(outcome.*number)) return std::nullopt;
      sum += *(outcome.*number);
    }
    return sum / static_cast<double>(outcomes.size());
  }
};

// How many times as much one method has as another, on equal seeds: the mean of the logarithms, and its 95 % interval.
struct Factor {
  double mean = 1;
  std::optional<study::Interval> ci95 = {};  // nothing with one seed

  bool is_above_one() const { return ci95 && ci95->low > 1; }
  bool is_below_one() const { return ci95 && ci95->high < 1; }
  // "1.75 times (1.32 to 2.31)"
  std::string text() const {
    const std::string range = ci95 ? fmt::format(" ({} to {})", digits(ci95->low, 3), digits(ci95->high, 3)) : "";
    return digits(mean, 3) + " times" + range;
  }
};

// REQUIRES: as many numbers of each.
Factor factor_of(const std::vector<double>& mine, const std::vector<double>& others) {
  // A memory that is always empty has a peak of 0, and no logarithm.
  const auto log_of = [](double x) { return portable_log(std::max(x, std::numeric_limits<double>::min())); };
  std::vector<double> logs;
  for (std::size_t i = 0; i < mine.size(); ++i) logs.push_back(log_of(mine[i]) - log_of(others[i]));
  Factor factor{.mean = portable_exp(study::mean(logs))};
  if (const auto ci95 = study::confidence_interval(logs)) {
    factor.ci95 = {.low = portable_exp(ci95->low), .high = portable_exp(ci95->high)};
  }
  return factor;
}

// REQUIRES: both reached the gap with all seeds.
Factor factor_of_bits(const Row& mine, const Row& other) {
  const auto bits = [](const Row& row) {
    std::vector<double> numbers;
    for (const Outcome& outcome : row.outcomes) numbers.push_back(*outcome.bits);
    return numbers;
  };
  return factor_of(bits(mine), bits(other));
}

Factor factor_of_peaks(const Row& mine, const Row& other) {
  const auto peaks = [](const Row& row) {
    std::vector<double> numbers;
    for (const Outcome& outcome : row.outcomes) numbers.push_back(outcome.peak);
    return numbers;
  };
  return factor_of(peaks(mine), peaks(other));
}

// The setting with the fewest bits; null if none reached the gap with all seeds.
const Row* best_of(const std::vector<Row>& rows, const std::string& method) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.setting.method != method || !row.mean_bits()) continue;
    if (best == nullptr || *row.mean_bits() < *best->mean_bits()) best = &row;
  }
  return best;
}

// Of the thresholds with fewer bits than this one, the one with the smallest peak; null if there is none.
const Row* calmest_below(const std::vector<Row>& rows, const Row& topk) {
  const Row* calmest = nullptr;
  for (const Row& row : rows) {
    if (row.setting.method != "threshold" || !row.mean_bits() || *row.mean_bits() >= *topk.mean_bits()) continue;
    if (calmest == nullptr || row.mean_peak() < calmest->mean_peak()) calmest = &row;
  }
  return calmest;
}

class Experiment {
 public:
  Experiment(const Options& options, const Progress& progress)
      : options_(options),
        progress_(progress),
        gap_(options.gap.value_or(options.by_size(5e-3, 2e-3, 2e-3))),
        rounds_(options.rounds.value_or(options.by_size<std::uint64_t>(kQuickRounds, 3000, 3000))),
        first_(options.seed.value_or(0)),
        judging_(options.seeds.value_or(options.by_size<std::uint64_t>(3, 5, 10))),
        tuning_(options.by_size<std::uint64_t>(1, 2, 3)) {}

  Result run_all() {
    const Registration rare = register_rare_topk();
    for (std::uint64_t seed = first_; seed < first_ + tuning_; ++seed) {
      const FarStart context(options_.data.value_or(""), seed, "iid");
      if (tuned_.empty()) {
        dim_ = context.start.size();
        for (const Setting& setting : settings_of(options_, dim_, scale_of(context))) tuned_.push_back({setting});
      }
      measure_all(context, tuned_);
    }
    choose();
    for (std::uint64_t seed = first_ + tuning_; seed < first_ + tuning_ + judging_; ++seed) {
      measure_all(FarStart(options_.data.value_or(""), seed, "iid"), judged_);
    }
    write_table();
    for (const Row& row : tuned_) add_measured(row, "tuning", first_);
    for (const Row& row : judged_) add_measured(row, "judging", first_ + tuning_);
    judge();
    return result_;
  }

 private:
  void measure_all(const FarStart& context, std::vector<Row>& rows) {
    // The number of settings that are judged is known only after tuning; there are at most five.
    const std::size_t all = tuned_.size() * tuning_ + 5 * judging_;
    for (Row& row : rows) {
      progress_(done_++, all);
      row.outcomes.push_back(measure(context, row.setting, rounds_, gap_));
    }
  }

  // What is judged: dense, the best setting of each method, and the threshold that holds back least.
  void choose() {
    const auto add = [&](const Row* row) {
      if (row == nullptr) return;
      for (const Row& one : judged_) {
        if (one.setting.value() == row->setting.value()) return;
      }
      judged_.push_back({row->setting});
    };
    add(best_of(tuned_, "dense"));
    for (const char* method : {"topk", "rare_top1", "threshold"}) add(best_of(tuned_, method));
    if (const Row* const topk = best_of(tuned_, "topk")) add(calmest_below(tuned_, *topk));
  }

  void write_table() {
    const auto text_of = [](const std::vector<Row>& rows) {
      Table table({"method", "setting", "rounds", "by seed", "bits per worker", "peak ||e||^2"});
      for (const Row& row : rows) {
        table.add({row.setting.method, row.setting.value(), fixed(row.mean_rounds(), 0), row.range_of_rounds(),
                   fixed(row.mean_bits(), 0), digits(row.mean_peak(), 4)});
      }
      return table.text();
    };
    const auto seeds = [](std::uint64_t count) { return fmt::format("{}{}", count, count == 1 ? " seed" : " seeds"); };
    result_.table = fmt::format(
        "until the mean of (f-f*)/(f0-f*) over {} rounds is below {}; e: the memory\n\n"
        "settings, on {}\n{}\nthe best of each method, and the threshold with the smallest peak that needs\n"
        "fewer bits than Top-k, on {}\n{}",
        kSmoothedOver, digits(gap_), seeds(tuning_), text_of(tuned_), seeds(judging_) + " more", text_of(judged_));
  }

  void add_measured(const Row& row, const char* stage, std::uint64_t first_seed) {
    Measured one{.method = row.setting.method,
                 .problem = options_.data ? "libsvm" : "synthetic",
                 .stage = stage,
                 .workers = FarStart::kWorkers,
                 .dim = dim_,
                 .k = row.setting.k,
                 .lambda = row.setting.lambda,
                 .gap = gap_,
                 .every = row.setting.every};
    const auto add = [&](const char* metric, std::optional<double> value) {
      one.metric = metric;
      one.value = value;
      result_.measured.push_back(one);
    };
    for (std::size_t i = 0; i < row.outcomes.size(); ++i) {
      one.seed = first_seed + i;
      add("bits_per_worker", row.outcomes[i].bits);
      add("rounds", row.outcomes[i].rounds);
      add("peak_memory_norm2", row.outcomes[i].peak);
    }
    one.seed.reset();
    add("mean_bits_per_worker", row.mean_bits());
    add("mean_peak_memory_norm2", row.mean_peak());
  }

  // How many times the bits of the threshold another setting needs, with how many seeds more, and its memory.
  std::string comparison(const std::string& name, const Row& other, const Row& threshold) const {
    std::size_t more = 0;
    for (std::size_t i = 0; i < other.outcomes.size(); ++i) {
      more += *other.outcomes[i].bits > *threshold.outcomes[i].bits ? 1U : 0U;
    }
    return fmt::format("{} needs {} the bits of {}, more with {} of {} seeds; its peak is {} as large", name,
                       factor_of_bits(other, threshold).text(), threshold.setting.value(), more, judging_,
                       factor_of_peaks(other, threshold).text());
  }

  // Why nothing can be judged; empty if something can. Where dense training does not arrive, the gap is too small or
  // the training too short for these data, whatever a method leaves out.
  std::string obstacle(const Row* topk) const {
    if (rounds_ < kQuickRounds) {
      return fmt::format("too short to judge: --rounds {} is less than the {} of --quick", rounds_, kQuickRounds);
    }
    if (best_of(judged_, "dense") == nullptr) return never("dense training");
    if (topk == nullptr) return never("Top-k");
    return judging_ < 2 ? "one seed has no interval: give more with --seeds" : "";
  }
  std::string never(const char* who) const {
    return fmt::format("{} does not reach the gap with every seed in {} rounds", who, rounds_);
  }

  void judge() {
    const Row* const topk = best_of(judged_, "topk");
    const Row* const rare = best_of(judged_, "rare_top1");
    // The first threshold that was chosen has the fewest bits on the tuning seeds, the last the smallest peak.
    const Row* least = nullptr;
    const Row* calmest = nullptr;
    for (const Row& row : judged_) {
      if (row.setting.method != "threshold") continue;
      if (least == nullptr) least = &row;
      calmest = &row;
    }
    result_.reason = obstacle(topk);
    if (!result_.reason.empty()) {
      result_.verdict = Verdict::not_judged;
      return;
    }
    if (least == nullptr || !least->mean_bits()) {
      result_.reason = never("the threshold");
      return;
    }
    const Factor bits = factor_of_bits(*topk, *least);
    const Factor peak = factor_of_peaks(*least, *topk);
    // Where no pause arrived on the tuning seeds there is no such rival. One that was chosen there and does not arrive
    // here has not lost: another pause might have.
    const bool has_rare = best_of(tuned_, "rare_top1") != nullptr;
    const bool beats_rare = !has_rare || (rare != nullptr && factor_of_bits(*rare, *least).is_above_one() &&
                                          factor_of_peaks(*least, *rare).is_below_one());
    const bool whole = peak.is_below_one() && beats_rare;
    result_.verdict = !bits.is_above_one() && !bits.is_below_one() ? Verdict::not_judged
                      : bits.is_below_one()                        ? Verdict::does_not_hold
                      : whole                                      ? Verdict::holds
                                                                   : Verdict::partly;
    result_.reason = fmt::format(
        "{}Top-k in every round needs {} the bits of the threshold with the fewest, Top-1 in every n-th {}; "
        "the peak of that threshold's memory is {} that of Top-k",
        result_.verdict == Verdict::not_judged ? "the seeds do not decide: " : "", bits.text(),
        rare == nullptr ? "does not arrive" : factor_of_bits(*rare, *least).text(), peak.text());
    const std::string in_every_round = fmt::format("Top-k, {},", topk->setting.value());
    result_.conditions.push_back(comparison(in_every_round, *topk, *least));
    if (rare != nullptr) {
      result_.conditions.push_back(comparison(fmt::format("Top-1 {} rounds", rare->setting.value()), *rare, *least));
    }
    if (calmest != least && calmest->mean_bits()) {
      result_.conditions.push_back(comparison(in_every_round, *topk, *calmest) +
                                   " (the threshold that holds back least)");
    }
  }

  const Options& options_;
  const Progress& progress_;
  double gap_;
  std::uint64_t rounds_;
  std::uint64_t first_;
  std::uint64_t judging_;  // seeds
  std::uint64_t tuning_;
  std::size_t dim_ = 0;
  std::size_t done_ = 0;
  std::vector<Row> tuned_;
  std::vector<Row> judged_;
  Result result_;
};

}  // namespace

Result reproduce_threshold_logreg(const Options& options, const Progress& progress) {
  return Experiment(options, progress).run_all();
}

}  // namespace sparsewire::reproduce
