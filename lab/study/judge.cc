#include "study/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sparsewire/support/portable_math.h"
#include "study/order.h"

namespace sparsewire::study {
namespace {

using Numbers = std::vector<double>;
using BySeed = std::vector<std::optional<double>>;
using Runs = std::vector<const Record*>;  // of one group, for each judging seed; null if there is none

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::optional<double> finite(double number) { return std::isfinite(number) ? std::optional(number) : std::nullopt; }

// The runs of a cell on these seeds.
Runs runs_of(const Plan& plan, std::optional<std::size_t> cell, std::string_view phase,
             const std::vector<std::uint64_t>& seeds, const std::vector<Record>& records) {
  Runs runs;
  for (const std::uint64_t seed : seeds) {
    const auto run = std::find_if(records.begin(), records.end(), [&](const Record& record) {
      return cell && record.phase == phase && record.seed == seed && is_same(record.cell, plan.cells[*cell]);
    });
    runs.push_back(run == records.end() ? nullptr : &*run);
  }
  return runs;
}

double value_of(const Record& run, std::string_view name) {
  const train::Totals& totals = run.totals;
  if (name == kBytes) return static_cast<double>(run.bytes());
  if (name == kBytesUp) return static_cast<double>(totals.bytes_up);
  if (name == kBytesDown) return static_cast<double>(totals.bytes_down);
  if (name == kPaperBits) return static_cast<double>(totals.paper_bits_up + totals.paper_bits_down);
  if (name == kTotalError) return totals.total_error;
  if (name == kPeakMemory) return run.peak_memory_norm2;
  return run.measure(name);
}

// The numbers of the runs that have one; nothing if one diverged.
template <class ValueOf>
BySeed by_seed(const Runs& runs, const ValueOf& value) {
  BySeed all;
  for (const Record* run : runs) {
    all.push_back(run != nullptr && !run->has_diverged() ? value(*run) : std::optional<double>());
  }
  return all;
}

Summary summarise(const Runs& runs, BySeed numbers, bool is_higher_better) {
  Summary summary{.by_seed = std::move(numbers), .mean = {}, .sd = {}, .ci95 = {}, .median = {}};
  Numbers known;
  Numbers ranked;  // smaller is better; what diverged is worst
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i] == nullptr) continue;
    const std::optional<double> one = summary.by_seed[i];
    if (one) known.push_back(*one);
    ranked.push_back(!one ? kInfinite : is_higher_better ? -*one : *one);
  }
  if (ranked.empty()) return summary;
  const std::optional<double> middle = finite(median(ranked));
  if (middle) summary.median = is_higher_better ? -*middle : *middle;
  if (known.size() < ranked.size()) return summary;
  summary.mean = mean(known);
  summary.sd = standard_deviation(known);
  summary.ci95 = confidence_interval(known);
  return summary;
}

Comparison compare(const Group& baseline, const Runs& runs, const BySeed& numbers, const Runs& baseline_runs,
                   const BySeed& baseline_numbers, bool is_higher_better) {
  Comparison comparison{.baseline = baseline, .diff = {}, .ci95 = {}, .p = {}, .p_holm = {}};
  Numbers differences;
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i] == nullptr || baseline_runs[i] == nullptr) continue;
    ++pairs;
    const auto rank = [&](std::optional<double> one) { return !one ? kInfinite : is_higher_better ? -*one : *one; };
    if (rank(numbers[i]) < rank(baseline_numbers[i])) ++comparison.wins;
    if (rank(numbers[i]) > rank(baseline_numbers[i])) ++comparison.losses;
    if (numbers[i] && baseline_numbers[i]) differences.push_back(*numbers[i] - *baseline_numbers[i]);
  }
  if (pairs == 0 || differences.size() < pairs) return comparison;
  comparison.diff = mean(differences);
  comparison.ci95 = confidence_interval(differences);
  comparison.p = t_test(differences);
  return comparison;
}

// What a group is compared with: the baseline at the same ratio, or at its first if it has none that is the same.
// Nothing for the baseline itself.
std::optional<std::size_t> baseline_of(const Plan& plan, const std::vector<Choice>& choices, const Group& group) {
  if (group.method_index == plan.baseline) return std::nullopt;
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].group.method_index != plan.baseline) continue;
    if (choices[i].group.ratio == group.ratio) return i;
    if (!first) first = i;
  }
  return first;
}

ToTarget to_target(const Plan& plan, const Runs& runs, double target) {
  ToTarget result;
  Numbers bytes;
  Numbers steps;
  for (const Record* run : runs) {
    result.bytes_by_seed.emplace_back();
    result.steps_by_seed.emplace_back();
    if (run == nullptr) continue;
    const std::optional<std::size_t> at = reached_at(*run, plan, target);
    if (at) {
      ++result.reached;
      result.bytes_by_seed.back() = static_cast<double>(run->curve[*at].bytes);
      result.steps_by_seed.back() = static_cast<double>(run->curve[*at].step);
    } else {
      result.censored_at = std::min(result.censored_at.value_or(run->bytes()), run->bytes());
    }
    bytes.push_back(result.bytes_by_seed.back().value_or(kInfinite));
    steps.push_back(result.steps_by_seed.back().value_or(kInfinite));
  }
  if (bytes.empty()) return result;
  result.median_bytes = finite(median(bytes));
  result.median_steps = finite(median(steps));
  return result;
}

void compare_targets(const ToTarget& baseline, ToTarget& result) {
  Numbers logs;
  for (std::size_t i = 0; i < result.bytes_by_seed.size(); ++i) {
    const std::optional<double> mine = result.bytes_by_seed[i];
    const std::optional<double> others = baseline.bytes_by_seed[i];
    if (!mine || !others || *mine <= 0 || *others <= 0) return;
    logs.push_back(portable_log(*mine / *others));
  }
  if (logs.empty()) return;
  result.log_ratio = mean(logs);
  result.log_ratio_ci95 = confidence_interval(logs);
}

// The primary measure where the run had moved that many bytes.
std::optional<double> at_bytes(const Record& run, const Plan& plan, std::uint64_t bytes) {
  if (plan.budget_bytes) return finite(run.measure(plan.primary));  // its number of steps was set by them
  Numbers xs;
  Numbers ys;
  for (const Point& point : run.curve) {
    xs.push_back(static_cast<double>(point.bytes));
    ys.push_back(measure(point, plan.primary));
  }
  const std::optional<double> value = interpolate(xs, ys, static_cast<double>(bytes));
  return value ? finite(*value) : std::nullopt;
}

// Where all runs are compared. With a schedule that depends on the number of steps, a run that had stopped there would
// have had other learning rates.
std::optional<std::uint64_t> equal_bytes_of(const Plan& plan, const std::vector<Runs>& all) {
  if (plan.budget_bytes) return plan.budget_bytes;
  std::optional<std::uint64_t> least;
  for (const Runs& runs : all) {
    for (const Record* run : runs) {
      if (run == nullptr || run->has_diverged()) continue;
      const std::string& schedule = run->config.schedule;
      if (schedule.substr(0, schedule.find(':')) != "constant") return std::nullopt;
      least = std::min(least.value_or(run->bytes()), run->bytes());
    }
  }
  return least == 0 ? std::nullopt : least;
}

std::optional<PilotCost> pilot_of(const Plan& plan, const Choice& choice, const std::vector<Record>& records) {
  if (!choice.cell) return std::nullopt;
  for (const Record& record : records) {
    if (record.phase != kPilot || !is_same(record.cell, plan.cells[*choice.cell])) continue;
    return PilotCost{.steps = record.steps,
                     .bytes = record.bytes(),
                     .lambda = record.lambda,
                     .downlink_lambda = record.downlink_lambda};
  }
  return std::nullopt;
}

std::optional<double> sent_of_asked(const Plan& plan, const Group& group, const Runs& runs) {
  if (group.ratio.empty() || plan.budget_bytes) return std::nullopt;
  Numbers sent;
  for (const Record* run : runs) {
    if (run != nullptr && !run->has_diverged()) sent.push_back(run->sent_of_asked());
  }
  return sent.empty() ? std::nullopt : std::optional(mean(sent));
}

std::vector<Measure> measures_of(const Plan& plan, const Runs& runs) {
  std::vector<Measure> measures;
  for (const char* const name : {kTestLoss, kValLoss, kTrainLoss, kMetric, kValMetric, kBytes, kBytesUp, kBytesDown,
                                 kPaperBits, kTotalError, kPeakMemory}) {
    const auto is_measured = [&](const Record* run) { return run != nullptr && std::isfinite(value_of(*run, name)); };
    if (std::none_of(runs.begin(), runs.end(), is_measured) && name != plan.primary) continue;
    BySeed numbers = by_seed(runs, [&](const Record& run) { return finite(value_of(run, name)); });
    measures.push_back({name, summarise(runs, std::move(numbers), is_higher_better(plan, name))});
  }
  return measures;
}

void adjust_for_all(std::vector<Judged>& groups) {
  std::vector<std::optional<double>> p;
  for (const Judged& one : groups) {
    if (one.vs_baseline) p.push_back(one.vs_baseline->p);
  }
  const std::vector<std::optional<double>> adjusted = holm(p);
  auto next = adjusted.begin();
  for (Judged& one : groups) {
    if (one.vs_baseline) one.vs_baseline->p_holm = *next++;
  }
}

}  // namespace

const Summary* Judged::find(std::string_view measure) const {
  const auto found =
      std::find_if(measures.begin(), measures.end(), [&](const Measure& one) { return one.name == measure; });
  return found == measures.end() ? nullptr : &found->numbers;
}

std::optional<double> target_of(const Plan& plan, const std::vector<Choice>& choices,
                                const std::vector<Record>& records) {
  if (plan.target) return plan.target;
  const auto baseline = std::find_if(choices.begin(), choices.end(),
                                     [&](const Choice& one) { return one.group.method_index == plan.baseline; });
  if (baseline == choices.end() || !baseline->cell) return std::nullopt;
  Numbers first;
  Numbers last;
  for (const Record* run : runs_of(plan, baseline->cell, kTune, plan.tune_seeds, records)) {
    if (run == nullptr || run->curve.empty()) return std::nullopt;
    first.push_back(measure(run->curve.front(), plan.target_by));
    last.push_back(run->measure(plan.target_by));
  }
  if (last.empty()) return std::nullopt;
  constexpr double kPart = 0.05;
  return finite(mean(last) + kPart * (mean(first) - mean(last)));
}

std::optional<std::size_t> reached_at(const Record& record, const Plan& plan, double target) {
  if (record.has_diverged()) return std::nullopt;
  Numbers losses;
  for (const Point& point : record.curve) losses.push_back(measure(point, plan.target_by));
  return first_to_reach(losses, target);
}

Judgement judge(const Plan& plan, const std::vector<Choice>& choices, const std::vector<Record>& records) {
  std::vector<Runs> runs;
  for (const Choice& choice : choices) runs.push_back(runs_of(plan, choice.cell, kJudge, plan.seeds, records));

  Judgement judgement{
      .target = target_of(plan, choices, records), .equal_bytes = equal_bytes_of(plan, runs), .groups = {}};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Judged judged{.choice = choices[i],
                  .measures = measures_of(plan, runs[i]),
                  .vs_baseline = {},
                  .to_target = {},
                  .equal_bytes = {},
                  .pilot = pilot_of(plan, choices[i], records),
                  .sent_of_asked = sent_of_asked(plan, choices[i].group, runs[i])};
    for (const Record* run : runs[i]) {
      if (run == nullptr) continue;
      ++judged.n;
      if (run->has_diverged()) ++judged.diverged;
    }
    if (judgement.target) judged.to_target = to_target(plan, runs[i], *judgement.target);
    if (judgement.equal_bytes) {
      BySeed numbers = by_seed(runs[i], [&](const Record& run) { return at_bytes(run, plan, *judgement.equal_bytes); });
      judged.equal_bytes = {.numbers = summarise(runs[i], std::move(numbers), is_higher_better(plan, plan.primary)),
                            .vs_baseline = {}};
    }
    judgement.groups.push_back(std::move(judged));
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::optional<std::size_t> at = baseline_of(plan, choices, choices[i].group);
    if (!at) continue;
    Judged& judged = judgement.groups[i];
    const Judged& baseline = judgement.groups[*at];
    const auto difference = [&](const BySeed& mine, const BySeed& others) {
      return compare(choices[*at].group, runs[i], mine, runs[*at], others, is_higher_better(plan, plan.primary));
    };
    judged.vs_baseline = difference(judged.find(plan.primary)->by_seed, baseline.find(plan.primary)->by_seed);
    if (judged.equal_bytes) {
      judged.equal_bytes->vs_baseline =
          difference(judged.equal_bytes->numbers.by_seed, baseline.equal_bytes->numbers.by_seed);
    }
    if (judged.to_target) compare_targets(*baseline.to_target, *judged.to_target);
  }
  adjust_for_all(judgement.groups);
  return judgement;
}

}  // namespace sparsewire::study
