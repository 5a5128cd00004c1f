// What the judging runs of the chosen cells say: every measure, the difference to the baseline, the bytes that a target
// takes, and the loss at equal bytes. docs/guides/study.md defines all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/choice.h"
#include "study/plan.h"
#include "study/record.h"
#include "study/statistics.h"

namespace sparsewire::study {

// Numbers of the judging seeds. With a run that diverged, or a number that is missing, there are no mean and interval.
struct Summary {
  std::vector<std::optional<double>> by_seed;  // nothing where the run diverged
  std::optional<double> mean;
  std::optional<double> sd;
  std::optional<Interval> ci95;
  std::optional<double> median;  // what diverged is worst; nothing if that is the median
};

struct Measure {
  std::string name;
  Summary numbers;
};

// Differences m_s - b_s of the runs with equal seeds.
struct Comparison {
  Group baseline;
  std::optional<double> diff;
  std::optional<Interval> ci95;
  std::optional<double> p;
  std::optional<double> p_holm;  // of the primary measure, adjusted for all groups that are compared
  std::size_t wins = 0;          // seeds where this group is better; what diverged is worst
  std::size_t losses = 0;
};

// The first evaluation whose mean with the 4 before it reaches the target.
struct ToTarget {
  std::vector<std::optional<double>> bytes_by_seed;  // up and down, of all workers; nothing where it was not reached
  std::vector<std::optional<double>> steps_by_seed;
  std::size_t reached = 0;
  std::optional<double> median_bytes;  // what did not reach it is infinite; nothing if that is the median
  std::optional<double> median_steps;
  std::optional<std::uint64_t> censored_at;  // the smallest final byte count of those that did not reach it
  // Of this group's bytes to the baseline's, only if all runs of both reached it.
  std::optional<double> log_ratio;
  std::optional<Interval> log_ratio_ci95;
};

struct EqualBytes {
  Summary numbers;  // of the primary measure
  std::optional<Comparison> vs_baseline;
};

struct PilotCost {
  std::uint64_t steps = 0;
  std::uint64_t bytes = 0;
  std::optional<double> lambda;
  std::optional<double> downlink_lambda;
};

// A group, by its chosen cell.
struct Judged {
  Choice choice;
  std::size_t n = 0;  // judging runs
  std::size_t diverged = 0;
  std::vector<Measure> measures;          // those that were measured
  std::optional<Comparison> vs_baseline;  // nothing for the baseline itself
  std::optional<ToTarget> to_target;      // nothing without a target
  std::optional<EqualBytes> equal_bytes;  // nothing where they cannot be compared
  std::optional<PilotCost> pilot;
  // Entries that workers sent over those that the ratio asks for, mean over the runs that did not diverge; nothing
  // without a ratio, and with a budget of bytes. A sparsifier may have reasons to send more: a warm-up, a rule.
  std::optional<double> sent_of_asked;

  const Summary* find(std::string_view measure) const;
};

struct Judgement {
  std::optional<double> target;  // of plan.target_by
  // The smallest final byte count of all runs that did not diverge, or plan.budget_bytes.
  std::optional<std::uint64_t> equal_bytes;
  std::vector<Judged> groups;  // as groups(plan)
};

// Names of measures besides those of plan.h.
inline constexpr const char* kBytes = "bytes";
inline constexpr const char* kBytesUp = "bytes_up";
inline constexpr const char* kBytesDown = "bytes_down";
inline constexpr const char* kPaperBits = "paper_bits";
inline constexpr const char* kTotalError = "total_error";
inline constexpr const char* kPeakMemory = "peak_memory_norm2";

// The target that was given; otherwise the loss of the baseline's chosen cell on the tuning seeds, plus 5 % of what the
// loss fell by. Nothing if there are no tuning seeds, or the baseline has no chosen cell.
std::optional<double> target_of(const Plan& plan, const std::vector<Choice>& choices,
                                const std::vector<Record>& records);

// Where the run reached the target: index in its curve. A run that diverged never did.
std::optional<std::size_t> reached_at(const Record& record, const Plan& plan, double target);

// `records`: all, in any order.
Judgement judge(const Plan& plan, const std::vector<Choice>& choices, const std::vector<Record>& records);

}  // namespace sparsewire::study
