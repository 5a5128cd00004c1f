// Experiments with deep networks, as data: what is trained, which methods are compared in which parts, and by which
// rule they are judged. A part is a study (study/study.h): settings are chosen on some seeds and judged on others, all
// runs are kept in a folder, and the same command continues. run_experiment() does that for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reproduce/deep_outcome.h"
#include "reproduce/reproduction.h"
#include "study/plan.h"
#include "text/json.h"

namespace sparsewire::reproduce {

using Texts = std::vector<std::string>;
using Rates = std::vector<double>;
using Numbers = std::vector<std::uint64_t>;

// One value for all sizes; {quick, usual and full}; or {quick, usual, full}.
template <class T>
struct BySize {
  // NOLINTNEXTLINE(google-explicit-constructor): `.passes = 2` says it.
  BySize(T all) : quick(all), usual(all), full(std::move(all)) {}
  BySize(T small, T others) : quick(std::move(small)), usual(others), full(std::move(others)) {}
  BySize(T small, T middle, T large) : quick(std::move(small)), usual(std::move(middle)), full(std::move(large)) {}

  const T& of(const Options& options) const {
    return options.size == Size::quick ? quick : options.size == Size::usual ? usual : full;
  }

  T quick;
  T usual;
  T full;
};

// What is trained, and for how long.
struct Recipe {
  BySize<std::string> problem;  // without its batch: "fashion_mlp", "gpt:width=64"
  // Of CIFAR-10: the first so many images, or all if there are fewer, and no verdict; 0: all.
  BySize<std::uint64_t> images = 0;
  BySize<std::uint64_t> batch = 10;
  std::uint64_t workers = 20;                    // unless --workers is given
  train::Json settings = train::Json::object();  // of a training, by the names of its options
  const char* primary = study::kMetric;          // what is judged: study/plan.h
  BySize<double> passes = 1;                     // over the training data, of a judging run
  BySize<double> tune_passes = 1;                // of a tuning run, if they are fewer
  double quick_passes = 1;                       // with fewer there is no verdict
  BySize<std::uint64_t> tune_seeds = {1, 1, 2};
  BySize<Rates> lrs;
  Rates lrs_of_many = {};  // with 50 workers and more; empty: the same
  bool is_once = false;    // one seed, whatever is asked for, and no tuning
};

struct Part {
  std::string name;   // also of its folder
  std::string title;  // one line, for people
  bool is_in_quick = true;
  train::Json settings = train::Json::object();  // besides those of the recipe
  // Each number of workers is a study of its own: "union-20"; --workers replaces the list. Empty: that of the recipe.
  BySize<Numbers> for_each_workers = Numbers{};
  bool is_for_each_ratio = false;  // each ratio is a study of its own: "iid-0.01"
  // Instead of those of the experiment.
  std::optional<Recipe> recipe = {};
  std::optional<BySize<Texts>> methods = {};
  std::optional<BySize<Texts>> ratios = {};
};

struct Experiment {
  std::string_view name;
  std::string_view paper;
  std::string_view claim;  // one line
  Recipe recipe;
  BySize<Texts> methods = Texts{};  // study/method.h
  BySize<Texts> ratios = Texts{};
  std::vector<Part> parts;
  std::string_view alone = {};  // why there is no verdict with one worker; empty: there is one
  // Sets verdict, reason and conditions, from the parts that were run. It is not asked where something was too short,
  // and not heard where `images` are few. A comparison that cannot be made, because a run diverged, does not show the
  // claim; where none can be made, there is no verdict. Findings does so.
  std::function<void(const Outcomes& outcomes, Result& result)> judge;
};

// ResNet-18 on CIFAR-10, 8 workers with batches of 20; --quick: ResNet-20, 2,000 images, and one learning rate.
Recipe cifar_recipe(BySize<Rates> lrs);

// Runs the parts that are wanted, and judges. Throws UsageError, also if there is no libtorch, or no data.
Result run_experiment(const Experiment& experiment, const Options& options);

}  // namespace sparsewire::reproduce
