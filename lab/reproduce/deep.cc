#include "reproduce/deep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "data/data_sets.h"
#include "networks/model.h"
#include "problems/problem.h"
#include "sparsewire/errors.h"
#include "text/names.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kHeldBack = 0.05;   // share of the samples on which learning rates are chosen; papers train with all
constexpr std::uint64_t kMany = 50;  // workers
constexpr double kEvaluationsInAPass = 2;
constexpr double kFewestEvaluations = 8;
constexpr double kMostEvaluations = 50;

// A part, with one number of workers and the ratios that are studied together.
struct Study {
  std::string name;
  std::string title;
  const Recipe* recipe;
  study::Request request;  // without what depends on the data: the problem and the steps
};

study::Request request_of(const Recipe& recipe, const Part& part, std::uint64_t workers, const Options& options) {
  study::Request request;
  request.lrs = workers >= kMany && !recipe.lrs_of_many.empty() ? recipe.lrs_of_many : recipe.lrs.of(options);
  request.primary = recipe.primary;
  request.seeds = recipe.is_once ? 1 : options.seeds.value_or(options.by_size<std::uint64_t>(2, 3, 3));
  request.tune_seeds = recipe.is_once ? 0 : recipe.tune_seeds.of(options);
  train::TrainConfig& config = request.config;
  train::set_from_object(config, {{"split", "iid"}, {"exchange", "server"}, {"validation", kHeldBack}});
  train::set_from_object(config, recipe.settings);
  train::set_from_object(config, part.settings);
  config.workers = workers;
  config.device = options.device.value_or("cpu");
  config.data_dir = options.data_dir.value_or("");
  config.seed = options.seed.value_or(0);
  return request;
}

// One for each ratio, or one with all.
void add_ratios(Study study, const Part& part, const Texts& ratios, std::vector<Study>& studies) {
  study.request.ratios = ratios;
  if (!part.is_for_each_ratio) return studies.push_back(study);
  const std::string name = study.name;
  for (const std::string& one : ratios) {
    study.name = name + "-" + one;
    study.request.ratios = {one};
    studies.push_back(study);
  }
}

std::vector<Study> studies_of(const Experiment& experiment, const Options& options) {
  std::vector<Study> studies;
  for (const Part& part : experiment.parts) {
    if (options.size == Size::quick && !part.is_in_quick) continue;
    const Recipe& recipe = part.recipe ? *part.recipe : experiment.recipe;
    const BySize<Texts>& methods = part.methods ? *part.methods : experiment.methods;
    const BySize<Texts>& ratios = part.ratios ? *part.ratios : experiment.ratios;
    const Numbers& numbers = part.for_each_workers.of(options);
    Numbers all = numbers.empty() ? Numbers{recipe.workers} : numbers;
    if (options.workers) all = {*options.workers};
    for (const std::uint64_t workers : all) {
      const std::string name = part.name + (numbers.empty() ? "" : fmt::format("-{}", workers));
      Study study{name, part.title, &recipe, request_of(recipe, part, workers, options)};
      study.request.methods = methods.of(options);
      add_ratios(std::move(study), part, ratios.of(options), studies);
    }
  }
  return studies;
}

// "fashion_mlp:batch=10", "gpt:width=64,batch=10", "resnet20:samples=2000,batch=10"
std::string problem_of(const Study& study, const Options& options) {
  std::string spec = study.recipe->problem.of(options);
  spec += spec.find(':') == std::string::npos ? ":" : ",";
  if (const std::uint64_t images = study.recipe->images.of(options); images != 0) {
    const train::TrainConfig& config = study.request.config;
    train::check_model_module(config.device);  // before the data: it is the first thing that is missing
    const auto data = train::read_images("cifar10", train::data_folder(config.data_dir));
    spec += fmt::format("samples={},", std::min<std::uint64_t>(images, data.train.size()));
  }
  return fmt::format("{}batch={}", spec, study.recipe->batch.of(options));
}

// As `sparsewire reproduce` calls an option of a study. What it has no option for follows from the others, or from
// --quick and --full, and is said in words.
std::string option_name(std::string_view key) {
  if (key == "steps") return "--rounds";
  for (const std::string_view same : {"workers", "seed", "seeds", "device"}) {
    if (key == same) return train::long_name(key);
  }
  constexpr std::pair<std::string_view, std::string_view> kInWords[] = {
      {"methods", "the list of methods"},
      {"ratio", "the list of ratios"},
      {"lr", "the list of learning rates"},
      {"tune_seeds", "the list of seeds for tuning"},
      {"tune_steps", "the limit on the rounds of a tuning run"},
      {"eval_every", "the number of rounds between evaluations"},
      {"data", "the contents of the training data"},
      {"test_data", "the contents of the test data"},
      {"weights", "the number of weights"},
  };
  for (const auto& [name, words] : kInWords) {
    if (key == name) return std::string(words);
  }
  std::string words = "the " + std::string(key);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::uint64_t rounded(double number) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(number)));
}

double steps_in_a_pass(const train::Problem& problem, const train::TrainConfig& config, std::uint64_t batch) {
  double samples = 0;
  for (int worker = 0; worker < static_cast<int>(config.workers); ++worker) {
    samples += static_cast<double>(problem.samples_of(worker));
  }
  return samples / static_cast<double>(config.workers * config.local_steps * batch);
}

void set_steps(Study& study, const train::Problem& problem, const Options& options, Outcome& outcome) {
  const Recipe& recipe = *study.recipe;
  train::TrainConfig& config = study.request.config;
  const double in_a_pass = steps_in_a_pass(problem, config, recipe.batch.of(options));
  config.steps = options.rounds.value_or(rounded(recipe.passes.of(options) * in_a_pass));
  const std::uint64_t tuning = rounded(recipe.tune_passes.of(options) * in_a_pass);
  if (tuning < config.steps && study.request.tune_seeds > 0) study.request.tune_steps = tuning;
  outcome.passes = static_cast<double>(config.steps) / in_a_pass;
  outcome.quick_steps = rounded(recipe.quick_passes * in_a_pass);
  const double evaluations = std::clamp(kEvaluationsInAPass * outcome.passes, kFewestEvaluations, kMostEvaluations);
  config.eval_every = rounded(static_cast<double>(config.steps) / evaluations);
}

// "union" names union-10, union-20 and so on.
bool is_called(const Study& study, const std::string& name) {
  return study.name == name || study.name.starts_with(name + "-");
}

bool is_wanted(const Study& study, const Options& options) {
  return !options.only || std::any_of(options.only->begin(), options.only->end(),
                                      [&](const std::string& name) { return is_called(study, name); });
}

void check_names(const std::vector<Study>& studies, const Options& options) {
  for (const std::string& name : options.only.value_or(std::vector<std::string>{})) {
    if (std::any_of(studies.begin(), studies.end(), [&](const Study& study) { return is_called(study, name); }))
      continue;
    throw UsageError(fmt::format("--only '{}' is not a part; there are {}", name, names_of(studies)));
  }
}

std::unique_ptr<Outcome> run_study(Study study, const Options& options) {
  auto outcome = std::make_unique<Outcome>();
  outcome->name = study.name;
  outcome->title = study.title;
  outcome->is_of_few_images = study.recipe->images.of(options) != 0;
  study.request.config.problem = problem_of(study, options);
  {
    const auto problem = train::make_problem(study.request.config.problem, train::problem_place(study.request.config));
    set_steps(study, *problem, options, *outcome);
    outcome->plan = study::make_plan(study.request, *problem);
    outcome->plan.option_name = option_name;
  }
  outcome->results = options.run_study(outcome->plan, options.out + "/" + study.name);
  if (outcome->results) {
    outcome->judgement = study::judge(outcome->plan, outcome->results->choices, outcome->results->records);
  }
  return outcome;
}

void judge(const Experiment& experiment, const Outcomes& outcomes, Result& result) {
  for (const auto& outcome : outcomes) {
    const std::uint64_t steps = outcome->plan.config.steps;
    if (steps >= outcome->quick_steps) continue;
    result.reason = fmt::format("too short to judge: --rounds {} is less than the {} of --quick in part {}", steps,
                                outcome->quick_steps, outcome->name);
    return;
  }
  result.reason = "the parts that were run do not decide";
  if (!experiment.alone.empty() && outcomes.front()->plan.config.workers == 1) {
    result.reason = experiment.alone;
  } else {
    experiment.judge(outcomes, result);
  }
  for (const auto& outcome : outcomes) {
    const std::string words = study::unequal_lrs(outcome->plan);
    if (!words.empty()) result.conditions.push_back(fmt::format("{}: {}", outcome->name, words));
  }
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const auto& one) { return one->is_of_few_images; })) {
    result.verdict = Verdict::not_judged;
    result.reason = "--quick trains a small network on few images: it shows that everything runs";
  }
}

}  // namespace

Recipe cifar_recipe(BySize<Rates> lrs) {
  return {.problem = {"resnet20", "resnet18"},
          .images = {2000, 0},
          .batch = {10, 20},
          .workers = 8,
          .passes = {2, 3, 10.1},  // 3,000 and 1,000 steps of 8 workers in the full form
          .tune_passes = {1, 1, 3.4},
          .quick_passes = 2,
          .tune_seeds = {0, 1},
          .lrs = std::move(lrs)};
}

Result run_experiment(const Experiment& experiment, const Options& options) {
  const std::vector<Study> studies = studies_of(experiment, options);
  check_names(studies, options);
  Outcomes outcomes;
  for (const Study& study : studies) {
    if (is_wanted(study, options)) outcomes.push_back(run_study(study, options));
  }
  Result result;
  result.verdict = Verdict::not_judged;
  result.reason = "nothing was run";
  if (!outcomes.front()->results) return result;
  for (const auto& outcome : outcomes) {
    result.table += (result.table.empty() ? "" : "\n") + outcome->table();
    outcome->add_numbers(result.measured);
  }
  judge(experiment, outcomes, result);
  return result;
}

}  // namespace sparsewire::reproduce
