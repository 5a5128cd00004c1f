// What came out of the parts of an experiment (deep.h), and what a verdict on it is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reproduce/reproduction.h"
#include "study/judge.h"
#include "study/plan.h"
#include "study/tables.h"

namespace sparsewire::reproduce {

// A paired difference of two methods, in the direction in which more is better: mean and interval over the seeds.
struct Difference {
  double mean = 0;
  std::optional<study::Interval> ci95;
  std::size_t seeds = 0;
  std::size_t wins = 0;
  bool is_of_accuracy = false;  // otherwise of losses
};

// Of seeds that both have. Nothing if a run diverged, or one of them is null.
std::optional<Difference> difference_of(const study::Summary* mine, const study::Summary* others, bool is_accuracy);

// "mine has 1.2 points more (0.3 to 2.1; better with 3 of 3 seeds) than other"; of losses "0.012 nats less". Nothing: a
// run diverged.
std::string in_words(std::string_view mine, const std::optional<Difference>& difference, std::string_view other);

// Rules for a difference. One that cannot be told is not as claimed.
inline bool is_at_least(const std::optional<Difference>& one, double least) { return one && one->mean >= least; }
inline bool is_more(const std::optional<Difference>& one) { return one && one->mean > 0; }
// Beyond what seeds explain.
inline bool is_clearly_more(const std::optional<Difference>& one) {
  return is_more(one) && one->ci95 && one->ci95->low > 0;
}

struct Outcome {
  std::string name;   // of the part
  std::string title;  // of the part
  study::Plan plan;
  std::unique_ptr<study::Results> results;
  study::Judgement judgement;
  double passes = 0;              // of a judging run, over the training data
  std::uint64_t quick_steps = 0;  // a run with fewer is not judged
  bool is_of_few_images = false;

  // Methods are called by their names. `ratio` is as in the plan, empty for the first that there is.
  const std::string& method_of(const study::Judged& one) const;
  // Null: there is none.
  const study::Judged* find(std::string_view method, std::string_view ratio = {}) const;
  const study::Summary* numbers(std::string_view method, std::string_view measure, std::string_view ratio = {}) const;
  // Over the seeds; nothing if a run diverged, or there is no such method.
  std::optional<double> mean(std::string_view method, std::string_view measure) const;
  // Of the primary measure.
  std::optional<Difference> difference(std::string_view method, std::string_view other,
                                       std::string_view ratio = {}) const;
  std::optional<Difference> difference_at_equal_bytes(std::string_view method, std::string_view other) const;
  // Of the methods whose names begin like this: the one whose chosen cell is best on the tuning seeds; without any the
  // first. Empty: there is none.
  std::string best_tuned(std::string_view beginning, std::string_view ratio) const;
  // Entries that a worker received in a step, mean over the steps of a judging run; for each seed. NaN if it diverged.
  std::vector<double> entries_down(std::string_view method) const;

  // For people: a title, and a row for each method and ratio.
  std::string table() const;
  // One of the numbers for the report, without its metric and value: of a judging run.
  Measured number(std::string_view method, std::uint64_t seed) const;
  // Of all runs: `stage` is tuning or judging.
  void add_numbers(std::vector<Measured>& measured) const;
};
using Outcomes = std::vector<std::unique_ptr<Outcome>>;

// Null: it was not run.
const Outcome* find_part(const Outcomes& outcomes, std::string_view name);

// Comparisons, and how many of them are as claimed.
struct Findings {
  Result& result;
  std::size_t all = 0;
  std::size_t right = 0;
  std::size_t clear = 0;     // comparisons in which mine is clearly more
  std::size_t compared = 0;  // comparisons that could be made
  std::size_t compared_right = 0;
  std::string first_wrong = {};  // "; not: " and what it says; empty: there is none
  std::string worst = {};  // "; the worst is " and the comparison in which mine is least; empty if it never is less
  double least = 0;        // the difference in that one

  // One method with another: "WHERE mine has 1.20 points more than other" becomes a condition of the result.
  void compare(std::string_view where, std::string_view mine, const std::optional<Difference>& difference,
               std::string_view other, bool is_right);
  // Something else that was claimed.
  void check(bool is_right, const std::string& text);
  // The claim holds if all is right, and partly if a comparison is, or is clear. No verdict if none could be made.
  void conclude(const std::string& reason);
};

}  // namespace sparsewire::reproduce
