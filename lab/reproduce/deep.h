// Experiments with deep networks. Each consists of parts, and a part is a study (study/study.h): settings are chosen on
// some seeds and judged on others, all runs are kept in a folder, and the same command continues. A file of an
// experiment only describes its parts and says what follows from their results.
#pragma once

#include <cstdint>
#include <functional>
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

// Share of the training samples on which learning rates are chosen. Papers train with all of them.
inline constexpr double kHeldBack = 0.05;

struct Part {
  std::string name;     // also of its folder
  std::string title;    // one line, for people
  std::string problem;  // without its batch: "fashion_mlp", "gpt:width=64"
  // Of CIFAR-10: the first so many images, or all if there are fewer, and no verdict; 0: all.
  std::uint64_t images = 0;
  std::uint64_t batch = 10;
  // Passes over the training data, of a judging run and of a tuning run; with fewer than `quick_passes` there is no
  // verdict.
  double passes = 1;
  double tune_passes = 1;
  double quick_passes = 1;
  study::Request request = {};  // the problem and the steps follow from what is above
};

// A part of an experiment with what all have in common: exchange, split, primary measure, device, seeds.
Part make_part(std::string name, std::string title, const Options& options);

// The same for ResNet-18 on CIFAR-10, 8 workers with batches of 20; --quick: ResNet-20 and 2,000 images.
Part cifar_part(const Options& options);
// The ratios of the deep studies: one in the quick form, else those of the papers, 99.9 % and 99 % compression, and
// what is between them if it is asked for.
std::vector<std::string> ratios_of(const Options& options, std::string quick, bool with_between = false);
// And for language models, 8 workers with batches of 10 rows. Judged by the loss.
Part text_part(const Options& options);

// A paired difference of two methods: mean and interval over the seeds.
struct Difference {
  double mean = 0;
  std::optional<study::Interval> ci95;
  std::size_t seeds = 0;
  std::size_t wins = 0;

  bool is_clear() const { return ci95 && (ci95->low > 0 || ci95->high < 0); }
};

struct Outcome {
  Part part;
  study::Plan plan;
  std::unique_ptr<study::Results> results;
  study::Judgement judgement;
  std::uint64_t quick_steps = 0;  // a run with fewer is not judged

  // By the name of the method; `ratio` as in the plan, empty for the first that there is. Null: there is none.
  const study::Judged* find(std::string_view method, std::string_view ratio = {}) const;
  // Of the primary measure, in the direction in which more is better. Nothing if a run diverged or a method is missing.
  std::optional<double> score(std::string_view method, std::string_view ratio = {}) const;
  std::optional<Difference> difference(std::string_view method, std::string_view other,
                                       std::string_view ratio = {}) const;
  // The same at equal bytes.
  std::optional<Difference> difference_at_equal_bytes(std::string_view method, std::string_view other,
                                                      std::string_view ratio = {}) const;
};
using Outcomes = std::vector<std::unique_ptr<Outcome>>;

// Of seeds that both have. `by_seed` as in study::Summary.
std::optional<Difference> difference_of(const std::vector<std::optional<double>>& mine,
                                        const std::vector<std::optional<double>>& others, bool higher_is_better);

// "mine has 1.2 points more (0.3 to 2.1; better with 3 of 3 seeds) than other"; of losses "0.012 nats less". Nothing: a
// run diverged.
std::string in_words(std::string_view mine, const std::optional<Difference>& difference, std::string_view other,
                     bool is_accuracy);

// Runs the parts that are wanted. `judge` sets verdict, reason and conditions, from the parts that there are; it is not
// asked where something was too short, and not heard where `images` are few. A comparison that cannot be made, because
// a run diverged, does not show the claim; where none can be made, there is no verdict. Throws UsageError, also if
// there is no libtorch, or no data.
Result run_parts(std::vector<Part> parts, const Options& options,
                 const std::function<void(const Outcomes& outcomes, Result& result)>& judge);

const Outcome* find_part(const Outcomes& outcomes, std::string_view name);

}  // namespace sparsewire::reproduce
