#include "reproduce/deep_table.h"

#include <fmt/core.h>

#include <cmath>

#include "reproduce/table.h"
#include "text/counted.h"
#include "text/number.h"

namespace sparsewire::reproduce {
namespace {

// Of a step, mean over the steps.
std::optional<double> entries_down(const study::Record& record) {
  if (record.has_diverged() || record.steps == 0) return std::nullopt;
  return record.mean_entries(record.totals.entries_down);
}

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

}  // namespace

std::string table_of(const Outcome& outcome) {
  const study::Plan& plan = outcome.plan;
  const std::string primary = measure_name(plan, plan.primary);
  const bool has_equal = outcome.judgement.equal_bytes.has_value();
  std::vector<std::string> titles{"method", "ratio", "lr", primary == study::kTestLoss ? "test loss" : primary};
  if (has_equal) titles.emplace_back("at equal bytes");
  titles.insert(titles.end(), {"bytes up", "bytes down"});
  Table table(titles);
  for (const study::Judged& one : outcome.judgement.groups) {
    const study::Group& group = one.choice.group;
    std::vector<std::string> row{plan.methods[group.method_index].name(), group.ratio.empty() ? "-" : group.ratio,
                                 lr_text(plan, one.choice), mean_text(one, one.find(plan.primary))};
    if (has_equal) row.push_back(one.equal_bytes ? mean_text(one, &one.equal_bytes->numbers) : "-");
    row.push_back(bytes_text(one.find(study::kBytesUp)));
    row.push_back(bytes_text(one.find(study::kBytesDown)));
    table.add(row);
  }
  const train::TrainConfig& config = plan.config;
  const std::string of_local_steps = config.local_steps == 1 ? "" : " of " + counted(config.local_steps, "local step");
  const std::string tuned =
      plan.tune_seeds.empty()
          ? ""
          : fmt::format("; chosen in {} with {}", counted(plan.tune_steps.value_or(config.steps), "step"),
                        counted(plan.tune_seeds.size(), "other seed"));
  return fmt::format("{}: {}\n{}, {}, {}, {}{}, {}{}\n{}", outcome.part.name, outcome.part.title, config.problem,
                     counted(config.workers, "worker"), counted(plan.dim, "weight"), counted(config.steps, "step"),
                     of_local_steps, counted(plan.seeds.size(), "seed"), tuned, table.text());
}

void add_numbers(const Outcome& outcome, std::vector<Measured>& measured) {
  const study::Plan& plan = outcome.plan;
  for (const study::Record& record : outcome.results->records) {
    const bool is_judging = record.phase == study::kJudge;
    if (!is_judging && record.phase != study::kTune) continue;
    Measured one{.method = plan.methods[record.cell.method_index].name(),
                 .part = outcome.part.name,
                 .problem = plan.config.problem,
                 .stage = is_judging ? "judging" : "tuning",
                 .workers = plan.config.workers,
                 .dim = plan.dim,
                 .ratio = record.cell.ratio.empty() ? std::nullopt : parse_number<double>(record.cell.ratio),
                 .k = record.cell.k,
                 .lr = record.cell.lr,
                 .seed = record.seed,
                 .step = record.steps};
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
    const std::optional<double> entries = entries_down(record);
    add("density_down", entries ? *entries / static_cast<double>(plan.dim) : study::kNotMeasured);
  }
  if (!outcome.judgement.equal_bytes) return;
  for (const study::Judged& judged : outcome.judgement.groups) {
    if (!judged.equal_bytes) continue;
    const study::Group& group = judged.choice.group;
    for (std::size_t i = 0; i < judged.equal_bytes->numbers.by_seed.size(); ++i) {
      measured.push_back({.method = plan.methods[group.method_index].name(),
                          .part = outcome.part.name,
                          .problem = plan.config.problem,
                          .stage = "judging",
                          .workers = plan.config.workers,
                          .dim = plan.dim,
                          .ratio = group.ratio.empty() ? std::nullopt : parse_number<double>(group.ratio),
                          .seed = plan.seeds[i],
                          .metric = measure_name(plan, plan.primary) + "_at_equal_bytes",
                          .value = judged.equal_bytes->numbers.by_seed[i]});
    }
  }
}

std::optional<double> entries_down(const Outcome& outcome, std::string_view method, std::uint64_t seed) {
  for (const study::Record& record : outcome.results->records) {
    const bool is_of_it = outcome.plan.methods[record.cell.method_index].name() == method && record.seed == seed;
    if (record.phase == study::kJudge && is_of_it) return entries_down(record);
  }
  return std::nullopt;
}

std::optional<double> entries_down(const Outcome& outcome, std::string_view method) {
  double sum = 0;
  for (const std::uint64_t seed : outcome.plan.seeds) {
    const std::optional<double> one = entries_down(outcome, method, seed);
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum / static_cast<double>(outcome.plan.seeds.size());
}

}  // namespace sparsewire::reproduce
