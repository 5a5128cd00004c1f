// How many bits logistic regression needs to come close to its optimum, and the largest norm of its workers' memories:
// a constant threshold against Top-k, each at the best of equally many settings.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021. 64 bits an entry, as they count.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reproduce/far_start.h"
#include "reproduce/reproduction.h"
#include "reproduce/table.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kBitsPerEntry = 64;

// A method with one value of k or lambda.
struct Setting {
  std::string method;
  std::optional<std::uint64_t> k = {};
  std::optional<double> lambda = {};  // for lr*gradient, as the authors give it; that of the spec is for the gradient

  std::string spec(double lr) const {
    if (k) return fmt::format("topk:k={}", *k);
    return lambda ? fmt::format("threshold:lambda={}", digits(*lambda / lr, 17)) : method;
  }
  std::string value() const { return k ? fmt::format("{}", *k) : lambda ? digits(*lambda) : ""; }
};

struct Outcome {
  std::optional<double> rounds;  // until the gap was reached; nothing: never
  std::optional<double> bits;    // sent by a worker until then
  double peak = 0;               // largest ||e||^2 of the run, e the memory; a mean over the workers
};

Outcome measure(const FarStart& context, const Setting& setting, std::uint64_t rounds, double gap) {
  std::optional<std::uint64_t> arrived;
  const RoundTotals totals =
      run(context.plan(setting.spec(context.lr), rounds), *context.problem, [&](const Round& round) {
        if (!arrived && context.gap_at(round.weights) < gap) arrived = round.step;
      });
  Outcome outcome;
  outcome.peak = totals.peak();
  if (arrived) {
    outcome.rounds = static_cast<double>(*arrived);
    outcome.bits = kBitsPerEntry * totals.entries_until(*arrived);
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

// Equally many values of k and of lambda.
std::vector<Setting> settings_of(const Options& options, std::uint64_t dim, double scale) {
  using Counts = std::vector<std::uint64_t>;
  using Factors = std::vector<double>;
  const auto counts = options.by_size<Counts>({2, 5, 10}, {1, 2, 3, 5, 7, 10, 20}, {1, 2, 3, 5, 7, 10, 20, 30, 50});
  const auto factors =
      options.by_size<Factors>({2, 1, 0.5}, {5, 3, 2, 1, 0.7, 0.5, 0.2}, {10, 5, 3, 2, 1, 0.7, 0.5, 0.2, 0.1});
  std::vector<Setting> settings{{.method = "dense"}};
  for (const std::uint64_t k : counts) settings.push_back({.method = "topk", .k = std::min(k, dim)});
  for (const double factor : factors) settings.push_back({.method = "threshold", .lambda = factor * scale});
  return settings;
}

struct Row {
  Setting setting;
  std::vector<Outcome> outcomes;  // by seed

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

// The setting with the fewest bits; null if none reached the gap.
const Row* best_of(const std::vector<Row>& rows, const std::string& method) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.setting.method != method || !row.mean_bits()) continue;
    if (best == nullptr || *row.mean_bits() < *best->mean_bits()) best = &row;
  }
  return best;
}

void add_measured(const Row& row, const Measured& common, std::uint64_t first_seed, Result& result) {
  Measured one = common;
  one.method = row.setting.method;
  one.k = row.setting.k;
  one.lambda = row.setting.lambda;
  const auto add = [&](const char* metric, std::optional<double> value) {
    one.metric = metric;
    one.value = value;
    result.measured.push_back(one);
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

// Of the thresholds with fewer bits than the best Top-k, the one with the smallest peak; null if there is none.
const Row* calmest_below(const std::vector<Row>& rows, const Row& topk) {
  const Row* calmest = nullptr;
  for (const Row& row : rows) {
    if (row.setting.method != "threshold" || !row.mean_bits() || *row.mean_bits() >= *topk.mean_bits()) continue;
    if (calmest == nullptr || row.mean_peak() < calmest->mean_peak()) calmest = &row;
  }
  return calmest;
}

std::string words_of(const Row& row) {
  return fmt::format("{}{}: {} bits per worker, peak {}", row.setting.k ? "k=" : "lambda=", row.setting.value(),
                     fixed(row.mean_bits(), 0), digits(row.mean_peak(), 4));
}

void judge(const std::vector<Row>& rows, std::uint64_t rounds, Result& result) {
  const Row* const topk = best_of(rows, "topk");
  const Row* const threshold = best_of(rows, "threshold");
  if (topk == nullptr || threshold == nullptr) {
    const char* const who = topk != nullptr ? "the threshold" : threshold != nullptr ? "Top-k" : "either";
    result.reason = fmt::format("the gap is not reached by {} in {} rounds", who, rounds);
    return;
  }
  const Row* const calmest = calmest_below(rows, *topk);
  result.verdict =
      calmest != nullptr && calmest->mean_peak() < topk->mean_peak() ? Verdict::holds : Verdict::does_not_hold;
  result.reason =
      fmt::format("Top-k needs {} times the bits of the threshold, each at its best ({}; {})",
                  fixed(*topk->mean_bits() / *threshold->mean_bits(), 2), words_of(*topk), words_of(*threshold));
  if (calmest == nullptr) return;
  result.reason += fmt::format("; with fewer bits than that Top-k, the smallest peak is at {}", words_of(*calmest));
}

}  // namespace

Result reproduce_threshold_logreg(const Options& options, const Progress& progress) {
  const double gap = options.gap.value_or(2e-3);
  const std::uint64_t rounds = options.rounds.value_or(options.by_size<std::uint64_t>(1000, 3000, 3000));
  const std::uint64_t first = options.seed.value_or(0);
  const std::uint64_t seeds = options.seeds.value_or(options.by_size<std::uint64_t>(1, 3, 5));

  std::vector<Row> rows;
  std::uint64_t dim = 0;
  std::size_t done = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const FarStart context(options.data.value_or(""), seed);
    if (rows.empty()) {
      dim = context.start.size();
      for (const Setting& setting : settings_of(options, dim, scale_of(context))) rows.push_back({setting, {}});
    }
    for (Row& row : rows) {
      progress(done++, rows.size() * seeds);
      row.outcomes.push_back(measure(context, row.setting, rounds, gap));
    }
  }

  Result result;
  Table table({"method", "k or lambda", "rounds", "bits per worker", "peak ||e||^2"});
  for (const Row& row : rows) {
    table.add({row.setting.method, row.setting.value(), fixed(row.mean_rounds(), 0), fixed(row.mean_bits(), 0),
               digits(row.mean_peak(), 4)});
    add_measured(row,
                 {.method = {},
                  .problem = options.data ? "libsvm" : "synthetic",
                  .workers = FarStart::kWorkers,
                  .dim = dim,
                  .gap = gap},
                 first, result);
  }
  result.table = fmt::format("until (f-f*)/(f0-f*) < {}; e: the memory; means over {}{}{}", digits(gap), seeds,
                             seeds == 1 ? " seed\n" : " seeds\n", table.text());
  judge(rows, rounds, result);
  return result;
}

}  // namespace sparsewire::reproduce
