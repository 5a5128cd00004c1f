#include "study/summary_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "loop/evaluation.h"
#include "sparsewire/support/portable_math.h"
#include "study/judge.h"
#include "text/counted.h"

namespace sparsewire::study {
namespace {

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); bytes /= 1000) ++unit;
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

// So many decimals that the half width of an interval has two digits; nothing if that is more than 6, or none.
std::optional<int> decimals_for(double half) {
  if (!(half > 0)) return std::nullopt;
  const std::string text = fmt::format("{:.1e}", half);
  const int decimals = std::max(0, 1 - std::atoi(text.substr(text.find('e') + 1).c_str()));
  return decimals <= 6 ? std::optional(decimals) : std::nullopt;
}

enum class Sign : bool { if_negative, always };

// "0.3251 +-0.0012"
std::string interval_text(double middle, const std::optional<Interval>& interval, Sign sign = Sign::if_negative) {
  const double half = interval ? (interval->high - interval->low) / 2 : 0;
  const std::optional<int> decimals = decimals_for(half);
  // Where the interval is tiny, it is in the difference to something else that digits count.
  const std::string text = decimals               ? fmt::format("{:.{}f}", middle, *decimals)
                           : sign == Sign::always ? fmt::format("{:.2g}", middle)
                                                  : fmt::format("{:.5g}", middle);
  const std::string with_sign = sign == Sign::always && middle >= 0 ? "+" + text : text;
  if (!interval) return with_sign;
  return with_sign + (decimals ? fmt::format(" +-{:.{}f}", half, *decimals) : fmt::format(" +-{:.1g}", half));
}

std::string summary_cell(const Judged& one, const Summary* numbers) {
  if (numbers == nullptr || one.n == 0) return kNothing;
  if (numbers->mean) return interval_text(*numbers->mean, numbers->ci95);
  if (numbers->median) return fmt::format("median {:.5g}", *numbers->median);
  return one.diverged > 0 ? "diverged" : kNothing;
}

std::string p_text(const std::optional<double>& p) {
  if (!p) return kNothing;
  return *p < 0.001 ? "<0.001" : fmt::format("{:.3f}", *p);
}

std::optional<double> typical(const Summary* numbers) {
  if (numbers == nullptr) return std::nullopt;
  return numbers->mean ? numbers->mean : numbers->median;
}

// "1/19.0", "1.25"
std::string quotient_text(const std::optional<double>& mine, const std::optional<double>& others) {
  if (!mine || !others || *mine <= 0 || *others <= 0) return kNothing;
  return *mine < *others ? fmt::format("1/{:#.3g}", *others / *mine) : fmt::format("{:#.3g}", *mine / *others);
}

// "test_loss" as "test loss"; the metric by its own name.
std::string words_for(const Plan& plan, const std::string& measure) {
  if (measure == kMetric) return plan.metric;
  if (measure == kValMetric) return "validation " + plan.metric;
  if (measure == kValLoss) return "validation loss";
  if (measure == kTrainLoss) return "training loss";
  return train::in_words(measure);
}

std::string ratio_text(const Group& group) { return group.ratio.empty() ? kNothing : group.ratio; }

std::string label_of(const Plan& plan, const Group& group) {
  const std::string& name = plan.methods[group.method_index].name();
  return group.ratio.empty() ? name : fmt::format("{}, ratio {}", name, group.ratio);
}

const Judged* baseline_among(const Plan& plan, const Judgement& judgement, const Judged& one) {
  const Judged* found = nullptr;
  for (const Judged& other : judgement.groups) {
    if (other.choice.group.method_index != plan.baseline) continue;
    if (found == nullptr || other.choice.group.ratio == one.choice.group.ratio) found = &other;
  }
  return found;
}

Sheet sheet_of_measures(const Plan& plan, const Judgement& judgement) {
  const std::string measure = words_for(plan, plan.primary);
  const std::string& baseline = plan.methods[plan.baseline].name();
  Sheet sheet{.name = "measures",
              .heading = fmt::format(
                  "Judged by {}: mean and 95 % interval, and the difference to {} on equal seeds; {} is better.",
                  measure, baseline, is_higher_better(plan, plan.primary) ? "positive" : "negative"),
              .titles = {"method", "ratio", measure, "difference", "p (Holm)", "won"},
              .rows = {}};
  for (const Judged& one : judgement.groups) {
    const std::optional<Comparison>& versus = one.vs_baseline;
    const bool has_diff = versus && versus->diff;
    const Judged* const other = baseline_among(plan, judgement, one);
    const bool has_pairs = versus && one.n > 0 && other != nullptr && other->n > 0;
    sheet.rows.push_back({plan.methods[one.choice.group.method_index].name(), ratio_text(one.choice.group),
                          summary_cell(one, one.find(plan.primary)),
                          has_diff ? interval_text(*versus->diff, versus->ci95, Sign::always) : kNothing,
                          versus ? p_text(versus->p_holm) : kNothing,
                          has_pairs ? fmt::format("{} of {}", versus->wins, one.n) : kNothing});
  }
  return sheet;
}

std::string target_cell(const Judged& one) {
  if (!one.to_target || one.n == 0) return kNothing;
  return one.to_target->median_bytes ? bytes_text(*one.to_target->median_bytes) : "not reached";
}

Sheet sheet_of_bytes(const Plan& plan, const Judgement& judgement) {
  constexpr std::size_t kLongestTitle = 9;
  const std::string& baseline = plan.methods[plan.baseline].name();
  const std::string of_baseline = "of " + (width_of(baseline) > kLongestTitle ? "baseline" : baseline);
  Sheet sheet{.name = "bytes",
              .heading = "Bytes of all workers, up and down, and as papers count them (64 bits for an entry).",
              .titles = {"method", "ratio", "bytes", of_baseline, "as papers", "to target", of_baseline},
              .rows = {}};
  if (judgement.target) {
    sheet.heading +=
        fmt::format(" To target: median of the bytes until the {} is at most {:.5g} (mean of 5 evaluations).",
                    words_for(plan, plan.target_by), *judgement.target);
  }
  for (const Judged& one : judgement.groups) {
    const Judged* const other = baseline_among(plan, judgement, one);
    const std::optional<double> bytes = typical(one.find(kBytes));
    const std::optional<double> bits = typical(one.find(kPaperBits));
    const bool has_ratio = one.to_target && one.to_target->log_ratio;
    sheet.rows.push_back(
        {plan.methods[one.choice.group.method_index].name(), ratio_text(one.choice.group),
         bytes ? bytes_text(*bytes) : kNothing,
         other == nullptr || other == &one ? kNothing : quotient_text(bytes, typical(other->find(kBytes))),
         bits ? bytes_text(*bits / 8) : kNothing, target_cell(one),
         has_ratio ? quotient_text(portable_exp(*one.to_target->log_ratio), 1) : kNothing});
  }
  return sheet;
}

Sheet sheet_of_settings(const Plan& plan, const Judgement& judgement) {
  Sheet sheet{.name = "settings",
              .heading =
                  "Chosen learning rates (* at the edge of the grid). Total error: squared norm of the error "
                  "memory, summed over the steps; peak: its largest norm.",
              .titles = {"method", "ratio", "lr", "at equal bytes", "total error", "peak"},
              .rows = {}};
  if (judgement.equal_bytes) {
    sheet.heading += fmt::format(" At equal bytes: {} after {}.", words_for(plan, plan.primary),
                                 bytes_text(static_cast<double>(*judgement.equal_bytes)));
  }
  // Besides what methods are judged by: the metric, or the loss if that is it.
  const char* const other = plan.primary == kMetric ? kTestLoss : kMetric;
  const bool has_other = std::any_of(judgement.groups.begin(), judgement.groups.end(),
                                     [&](const Judged& one) { return one.find(other) != nullptr; });
  if (has_other) sheet.titles.insert(sheet.titles.begin() + 3, words_for(plan, other));
  for (const Judged& one : judgement.groups) {
    const Choice& choice = one.choice;
    const bool is_at_edge = choice.at_low_edge != choice.at_high_edge;
    const std::string lr = choice.cell ? fmt::format("{}", plan.cells[*choice.cell].lr) : kNothing;
    const auto number = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.3g}", *value) : kNothing;
    };
    std::optional<double> peak = typical(one.find(kPeakMemory));
    if (peak) peak = std::sqrt(*peak);
    std::vector<std::string> row{plan.methods[choice.group.method_index].name(), ratio_text(choice.group),
                                 lr + (is_at_edge ? "*" : "")};
    const std::optional<double> metric = has_other ? typical(one.find(other)) : std::nullopt;
    if (has_other) row.push_back(metric ? fmt::format("{:#.4g}", *metric) : kNothing);
    row.push_back(one.equal_bytes ? summary_cell(one, &one.equal_bytes->numbers) : kNothing);
    row.push_back(number(typical(one.find(kTotalError))));
    row.push_back(number(peak));
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

// "learning rate 0.3, mu=4"
std::string setting_text(const Cell& cell) {
  std::string text = fmt::format("learning rate {:g}", cell.lr);
  for (const auto& [name, value] : cell.own) text += fmt::format(", {}={}", name, value);
  return text;
}

// What does not fit into the tables, of one group.
void add_notes(const Plan& plan, const Judged& one, std::size_t fewest_tried, std::vector<std::string>& notes) {
  const Choice& choice = one.choice;
  const std::string label = label_of(plan, choice.group);
  if (!choice.cell) {
    notes.push_back(
        fmt::format("{}: no setting could be chosen: each diverged on a tuning seed, or is not run yet.", label));
    return;
  }
  std::string own;
  for (const auto& [name, value] : plan.cells[*choice.cell].own) {
    const bool is_at_edge = choice.own_at_edge.contains(name);
    own += fmt::format("{}{}={}{}", own.empty() ? "" : ", ", name, value, is_at_edge ? "*" : "");
  }
  if (!own.empty()) notes.push_back(fmt::format("{}: {} was chosen.", label, own));
  if (choice.cells_tried > fewest_tried) {
    notes.push_back(fmt::format("{}: it had {} settings to choose from.", label, choice.cells_tried));
  }
  if (choice.too_much && choice.too_much->cell == *choice.cell) {
    notes.push_back(
        fmt::format("{}: every setting sent more than {:g} times as many entries as its ratio asks for; the one that "
                    "sent least was chosen, {:.3g} times.",
                    label, kMostOfAsked, *choice.too_much->sent_of_asked));
  } else if (choice.too_much) {
    notes.push_back(
        fmt::format("{}: {} had a better {} and was not chosen, because its threshold sent {:.3g} times as many "
                    "entries as the ratio asks for.",
                    label, setting_text(plan.cells[choice.too_much->cell]), words_for(plan, plan.tuned_by),
                    *choice.too_much->sent_of_asked));
  }
  if (one.sent_of_asked && *one.sent_of_asked > kMostOfAsked) {
    notes.push_back(
        fmt::format("{}: it sent {:.3g} times as many entries as its ratio asks for.", label, *one.sent_of_asked));
  }
  if (one.n < plan.seeds.size()) {
    notes.push_back(fmt::format("{}: {} of {} runs are done.", label, one.n, plan.seeds.size()));
  }
  if (one.diverged > 0) {
    notes.push_back(fmt::format("{}: {} of {} runs diverged, so there is no mean; a diverged run counts as worst.",
                                label, one.diverged, one.n));
  }
  if (one.to_target && one.n > 0 && !one.to_target->median_bytes) {
    notes.push_back(fmt::format("{}: target not reached, {} of {}, censored at {}.", label,
                                one.n - one.to_target->reached, one.n,
                                bytes_text(static_cast<double>(one.to_target->censored_at.value_or(0)))));
  }
  const std::optional<ToTarget>& target = one.to_target;
  if (target && target->median_bytes && target->reached < one.n) {
    notes.push_back(
        fmt::format("{}: {} of {} runs reached the target; a quotient needs all.", label, target->reached, one.n));
  }
  if (one.pilot) {
    notes.push_back(fmt::format("{}: its pilot moved {} in {} steps, which are not counted above.", label,
                                bytes_text(static_cast<double>(one.pilot->bytes)), one.pilot->steps));
  }
}

}  // namespace

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char one) { return (static_cast<unsigned char>(one) & 0xc0) != 0x80; }));
}

std::string about_intervals(const Plan& plan) {
  const char* const start = plan.init_weights.empty() ? "the start, " : "";
  return "95 % intervals of the t distribution over the judging seeds. They cover " +
         (plan.data.empty()
              ? fmt::format("the generated data, {}the batches and the split: all that a seed decides.", start)
              : fmt::format("{}the batches and the split, which a seed decides; not the data set.", start));
}

Page page_of(const Results& results) {
  const Plan& plan = results.plan;
  const train::TrainConfig& config = plan.config;
  const Judgement judgement = judge(plan, results.choices, results.records);
  Page page{.heading = fmt::format("{}{}: {}, {}, {}, {}", config.problem,
                                   config.data.empty() ? "" : " on " + config.data.substr(config.data.rfind('/') + 1),
                                   counted(plan.dim, "weight"), counted(config.workers, "worker"),
                                   counted(config.steps, "step"), counted(plan.seeds.size(), "seed")),
            .sheets = {sheet_of_measures(plan, judgement), sheet_of_bytes(plan, judgement),
                       sheet_of_settings(plan, judgement)},
            .notes = {about_intervals(plan)}};
  if (plan.budget_bytes) {
    page.heading = fmt::format("{}, {} a run", page.heading, bytes_text(static_cast<double>(*plan.budget_bytes)));
  }
  std::size_t most = 0;
  std::size_t fewest = plan.cells.size();
  for (const Judged& one : judgement.groups) {
    most = std::max(most, one.choice.cells_tried);
    fewest = std::min(fewest, one.choice.cells_tried);
  }
  if (most <= 1) {
    page.notes.emplace_back("Nothing was tuned: every method had one setting, which was given.");
  } else {
    page.notes.push_back(fmt::format("The settings of a method were chosen from {} by the mean {} on {}.",
                                     fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most),
                                     words_for(plan, plan.tuned_by), counted(plan.tune_seeds.size(), "other seed")));
  }
  const bool has_edge = std::any_of(judgement.groups.begin(), judgement.groups.end(), [](const Judged& one) {
    const Choice& choice = one.choice;
    return choice.cell && (choice.at_low_edge != choice.at_high_edge || !choice.own_at_edge.empty());
  });
  if (has_edge) page.notes.emplace_back("* The best value may be beyond the grid: give more of them, or --grow.");
  for (const std::string& note : plan.notes) page.notes.push_back(note);
  for (const Judged& one : judgement.groups) add_notes(plan, one, fewest, page.notes);
  return page;
}

}  // namespace sparsewire::study
