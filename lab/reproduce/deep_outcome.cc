#include "reproduce/deep_outcome.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "reproduce/table.h"
#include "study/choice.h"
#include "study/statistics.h"
#include "text/counted.h"
#include "text/number.h"

namespace sparsewire::reproduce {
namespace {

std::string mean_text(const study::Judged& one, const study::Summary* numbers) {
  if (numbers == nullptr || one.n == 0) return "-";
  if (!numbers->mean) return fmt::format("{} of {} diverged", one.diverged, one.n);
  if (!numbers->ci95) return fixed(numbers->mean, 4);
  return fmt::format("{:.4f} +-{:.4f}", *numbers->mean, (numbers->ci95->high - numbers->ci95->low) / 2);
}

std::string bytes_text(const study::Summary* numbers) {
  if (numbers == nullptr || !numbers->mean) return "-";
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double bytes = *numbers->mean;
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); bytes /= 1000) ++unit;
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

// "0.08*": at the edge of the grid.
std::string lr_text(const study::Plan& plan, const study::Choice& choice) {
  if (!choice.cell) return "-";
  const bool is_at_edge = (choice.at_low_edge || choice.at_high_edge) && plan.lrs.size() > 1;
  return fmt::format("{:.4g}{}", plan.cells[*choice.cell].lr, is_at_edge ? "*" : "");
}

std::string measure_name(const study::Plan& plan, const std::string& measure) {
  return measure == study::kMetric ? plan.metric : measure;
}

double entries_of(const study::Record& record) {
  if (record.has_diverged() || record.steps == 0) return study::kNotMeasured;
  return record.mean_entries(record.totals.entries_down);
}

}  // namespace

std::optional<Difference> difference_of(const study::Summary* mine, const study::Summary* others, bool is_accuracy) {
  if (mine == nullptr || others == nullptr) return std::nullopt;
  if (mine->by_seed.empty() || mine->by_seed.size() != others->by_seed.size()) return std::nullopt;
  std::vector<double> differences;
  for (std::size_t i = 0; i < mine->by_seed.size(); ++i) {
    const std::optional<double> one = mine->by_seed[i];
    const std::optional<double> other = others->by_seed[i];
    if (!one || !other) return std::nullopt;
    differences.push_back(is_accuracy ? *one - *other : *other - *one);
  }
  const auto wins = std::count_if(differences.begin(), differences.end(), [](double one) { return one > 0; });
  return Difference{.mean = study::mean(differences),
                    .ci95 = study::confidence_interval(differences),
                    .seeds = differences.size(),
                    .wins = static_cast<std::size_t>(wins),
                    .is_of_accuracy = is_accuracy};
}

std::string in_words(std::string_view mine, const std::optional<Difference>& difference, std::string_view other) {
  if (!difference) return fmt::format("{} cannot be compared with {}: a run diverged", mine, other);
  const bool is_accuracy = difference->is_of_accuracy;
  const double unit = is_accuracy ? 100 : 1;
  const int decimals = is_accuracy ? 2 : 4;
  const bool is_better = difference->mean >= 0;
  std::string text = fmt::format("{} has {:.{}f} {} {}", mine, std::abs(difference->mean) * unit, decimals,
                                 is_accuracy ? "points" : "nats", is_accuracy == is_better ? "more" : "less");
  if (difference->ci95) {
    const double side = is_better ? unit : -unit;
    const auto [low, high] = std::minmax({side * difference->ci95->low, side * difference->ci95->high});
    text += fmt::format(" ({:.{}f} to {:.{}f}; better with {} of {} seeds)", low, decimals, high, decimals,
                        difference->wins, difference->seeds);
  }
  return fmt::format("{} than {}", text, other);
}

const std::string& Outcome::method_of(const study::Judged& one) const {
  return plan.methods[one.choice.group.method_index].name();
}

const study::Judged* Outcome::find(std::string_view method, std::string_view ratio) const {
  for (const study::Judged& one : judgement.groups) {
    const std::string& its_ratio = one.choice.group.ratio;
    if (method_of(one) != method) continue;
    if (ratio.empty() || its_ratio.empty() || its_ratio == ratio) return &one;
  }
  return nullptr;
}

const study::Summary* Outcome::numbers(std::string_view method, std::string_view measure,
                                       std::string_view ratio) const {
  const study::Judged* const one = find(method, ratio);
  return one == nullptr ? nullptr : one->find(measure);
}

std::optional<double> Outcome::mean(std::string_view method, std::string_view measure) const {
  const study::Summary* const all = numbers(method, measure);
  return all == nullptr ? std::nullopt : all->mean;
}

std::optional<Difference> Outcome::difference(std::string_view method, std::string_view other,
                                              std::string_view ratio) const {
  return difference_of(numbers(method, plan.primary, ratio), numbers(other, plan.primary, ratio),
                       study::is_higher_better(plan, plan.primary));
}

std::optional<Difference> Outcome::difference_at_equal_bytes(std::string_view method, std::string_view other) const {
  const auto at_equal_bytes = [this](std::string_view which) {
    const study::Judged* const one = find(which);
    return one == nullptr || !one->equal_bytes ? nullptr : &one->equal_bytes->numbers;
  };
  return difference_of(at_equal_bytes(method), at_equal_bytes(other), study::is_higher_better(plan, plan.primary));
}

std::string Outcome::best_tuned(std::string_view beginning, std::string_view ratio) const {
  const auto cells = study::tuned_cells(plan, results->records);
  std::string best;
  std::optional<double> lowest;
  for (const study::Judged& one : judgement.groups) {
    const std::string& method = method_of(one);
    if (!method.starts_with(beginning) || one.choice.group.ratio != ratio || !one.choice.cell) continue;
    const std::optional<double> loss = cells[*one.choice.cell].mean;
    if (!best.empty() && !(loss && (!lowest || *loss < *lowest))) continue;
    best = method;
    lowest = loss;
  }
  return best;
}

std::vector<double> Outcome::entries_down(std::string_view method) const {
  std::vector<double> by_seed(plan.seeds.size(), study::kNotMeasured);
  for (const study::Record& record : results->records) {
    if (record.phase != study::kJudge || plan.methods[record.cell.method_index].name() != method) continue;
    by_seed[record.seed - plan.seeds.front()] = entries_of(record);
  }
  return by_seed;
}

std::string Outcome::table() const {
  const std::string primary = measure_name(plan, plan.primary);
  const bool has_equal = judgement.equal_bytes.has_value();
  std::vector<std::string> titles{"method", "ratio", "lr", primary == study::kTestLoss ? "test loss" : primary};
  if (has_equal) titles.emplace_back("at equal bytes");
  titles.insert(titles.end(), {"bytes up", "bytes down"});
  Table rows(titles);
  for (const study::Judged& one : judgement.groups) {
    const study::Group& group = one.choice.group;
    std::vector<std::string> row{method_of(one), group.ratio.empty() ? "-" : group.ratio, lr_text(plan, one.choice),
                                 mean_text(one, one.find(plan.primary))};
    if (has_equal) row.push_back(one.equal_bytes ? mean_text(one, &one.equal_bytes->numbers) : "-");
    row.push_back(bytes_text(one.find(study::kBytesUp)));
    row.push_back(bytes_text(one.find(study::kBytesDown)));
    rows.add(row);
  }
  const train::TrainConfig& config = plan.config;
  const std::string of_local_steps = config.local_steps == 1 ? "" : " of " + counted(config.local_steps, "local step");
  const std::string tuned =
      plan.tune_seeds.empty()
          ? ""
          : fmt::format("; chosen in {} with {}", counted(plan.tune_steps.value_or(config.steps), "step"),
                        counted(plan.tune_seeds.size(), "other seed"));
  return fmt::format("{}: {}\n{}, {}, {}, {}{}, {}{}\n{}", name, title, config.problem,
                     counted(config.workers, "worker"), counted(plan.dim, "weight"), counted(config.steps, "step"),
                     of_local_steps, counted(plan.seeds.size(), "seed"), tuned, rows.text());
}

Measured Outcome::number(std::string_view method, std::uint64_t seed) const {
  return {.method = std::string(method),
          .part = name,
          .problem = plan.config.problem,
          .stage = "judging",
          .workers = plan.config.workers,
          .dim = plan.dim,
          .seed = seed};
}

void Outcome::add_numbers(std::vector<Measured>& measured) const {
  for (const study::Record& record : results->records) {
    const bool is_judging = record.phase == study::kJudge;
    if (!is_judging && record.phase != study::kTune) continue;
    Measured one = number(plan.methods[record.cell.method_index].name(), record.seed);
    if (!is_judging) one.stage = "tuning";
    one.ratio = parse_number<double>(record.cell.ratio);
    one.k = record.cell.k;
    one.lr = record.cell.lr;
    one.step = record.steps;
    const auto add = [&](const std::string& metric, double value) {
      one.metric = metric;
      one.value = std::isfinite(value) ? std::optional(value) : std::nullopt;
      measured.push_back(one);
    };
    if (!is_judging) {
      add(plan.tuned_by, record.measure(plan.tuned_by));
      continue;
    }
    if (!plan.metric.empty()) add(plan.metric, record.metric);
    add(study::kTestLoss, record.test_loss);
    add("bytes_up", static_cast<double>(record.totals.bytes_up));
    add("bytes_down", static_cast<double>(record.totals.bytes_down));
    add("paper_bits_up", static_cast<double>(record.totals.paper_bits_up));
    add("paper_bits_down", static_cast<double>(record.totals.paper_bits_down));
    add("density_down", entries_of(record) / static_cast<double>(plan.dim));
  }
  if (!judgement.equal_bytes) return;
  for (const study::Judged& judged : judgement.groups) {
    if (!judged.equal_bytes) continue;
    for (std::size_t i = 0; i < judged.equal_bytes->numbers.by_seed.size(); ++i) {
      Measured& one = measured.emplace_back(number(method_of(judged), plan.seeds[i]));
      one.ratio = parse_number<double>(judged.choice.group.ratio);
      one.metric = measure_name(plan, plan.primary) + "_at_equal_bytes";
      one.value = judged.equal_bytes->numbers.by_seed[i];
    }
  }
}

const Outcome* find_part(const Outcomes& outcomes, std::string_view name) {
  const auto found = std::find_if(outcomes.begin(), outcomes.end(), [&](const auto& one) { return one->name == name; });
  return found == outcomes.end() ? nullptr : found->get();
}

void Findings::compare(std::string_view where, std::string_view mine, const std::optional<Difference>& difference,
                       std::string_view other, bool is_right) {
  const std::string text = fmt::format("{} {}", where, in_words(mine, difference, other));
  check(is_right, text);
  if (!difference) return;
  ++compared;
  if (is_right) ++compared_right;
  if (is_clearly_more(difference)) ++clear;
  if (difference->mean < least) {
    least = difference->mean;
    worst = "; the worst is " + text;
  }
}

void Findings::check(bool is_right, const std::string& text) {
  result.conditions.push_back(text);
  ++all;
  if (is_right) ++right;
  if (!is_right && first_wrong.empty()) first_wrong = "; not: " + text;
}

void Findings::conclude(const std::string& reason) {
  if (compared == 0) return;
  const bool is_partly = compared_right > 0 || clear > 0;
  result.verdict = right == all ? Verdict::holds : is_partly ? Verdict::partly : Verdict::does_not_hold;
  result.reason = reason;
}

}  // namespace sparsewire::reproduce
