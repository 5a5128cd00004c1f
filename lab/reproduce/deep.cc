#include "reproduce/deep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/data_sets.h"
#include "networks/model.h"
#include "problems/problem.h"
#include "reproduce/deep_table.h"
#include "sparsewire/errors.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kEvaluationsInAPass = 2;
constexpr double kFewestEvaluations = 8;
constexpr double kMostEvaluations = 50;

std::uint64_t rounded(double number) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(number)));
}

// "fashion_mlp:batch=10", "gpt:width=64,batch=10", "resnet20:samples=2000,batch=10"
std::string spec_of(const Part& part) {
  std::string spec = part.problem + (part.problem.find(':') == std::string::npos ? ":" : ",");
  if (part.images != 0) {
    const train::TrainConfig& config = part.request.config;
    train::check_model_module(config.device);  // before the data: it is the first thing that is missing
    const auto data = train::read_images("cifar10", train::data_folder(config.data_dir));
    spec += fmt::format("samples={},", std::min<std::uint64_t>(part.images, data.train.size()));
  }
  return fmt::format("{}batch={}", spec, part.batch);
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

double steps_in_a_pass(const Part& part, const train::Problem& problem) {
  double samples = 0;
  const train::TrainConfig& config = part.request.config;
  for (int worker = 0; worker < static_cast<int>(config.workers); ++worker) {
    samples += static_cast<double>(problem.samples_of(worker));
  }
  return samples / static_cast<double>(config.workers * config.local_steps * part.batch);
}

// Returns the steps that a run needs for a verdict.
std::uint64_t set_steps(Part& part, const train::Problem& problem, const Options& options) {
  const double in_a_pass = steps_in_a_pass(part, problem);
  train::TrainConfig& config = part.request.config;
  config.steps = options.rounds.value_or(rounded(part.passes * in_a_pass));
  const std::uint64_t tuning = rounded(part.tune_passes * in_a_pass);
  if (tuning < config.steps && part.request.tune_seeds > 0) part.request.tune_steps = tuning;
  part.passes = static_cast<double>(config.steps) / in_a_pass;
  const double evaluations = std::clamp(kEvaluationsInAPass * part.passes, kFewestEvaluations, kMostEvaluations);
  config.eval_every = rounded(static_cast<double>(config.steps) / evaluations);
  return rounded(part.quick_passes * in_a_pass);
}

// "union" names union-10, union-20 and so on.
bool is_called(const Part& part, const std::string& name) {
  return part.name == name || part.name.starts_with(name + "-");
}

bool is_wanted(const Part& part, const Options& options) {
  return !options.only || std::any_of(options.only->begin(), options.only->end(),
                                      [&](const std::string& name) { return is_called(part, name); });
}

void check_names(const std::vector<Part>& parts, const Options& options) {
  std::string all;
  for (const Part& part : parts) all += fmt::format("{}{}", all.empty() ? "" : ", ", part.name);
  for (const std::string& name : options.only.value_or(std::vector<std::string>{})) {
    if (std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return is_called(part, name); })) continue;
    throw UsageError(fmt::format("--only '{}' is not a part; there are {}", name, all));
  }
}

std::unique_ptr<Outcome> run_part(Part part, const Options& options) {
  auto outcome = std::make_unique<Outcome>();
  outcome->part = std::move(part);
  Part& mine = outcome->part;
  mine.request.config.problem = spec_of(mine);
  {
    const auto problem = train::make_problem(mine.request.config.problem, train::problem_place(mine.request.config));
    outcome->quick_steps = set_steps(mine, *problem, options);
    outcome->plan = study::make_plan(mine.request, *problem);
    outcome->plan.option_name = option_name;
  }
  outcome->results = options.run_study(outcome->plan, options.out + "/" + mine.name);
  if (outcome->results) {
    outcome->judgement = study::judge(outcome->plan, outcome->results->choices, outcome->results->records);
  }
  return outcome;
}

}  // namespace

Part make_part(std::string name, std::string title, const Options& options) {
  Part part{.name = std::move(name), .title = std::move(title), .problem = {}};
  train::TrainConfig& config = part.request.config;
  config.split = "iid";
  config.exchange = "server";
  config.validation = kHeldBack;
  config.workers = options.workers.value_or(20);
  config.device = options.device.value_or("cpu");
  config.data_dir = options.data_dir.value_or("");
  config.seed = options.seed.value_or(0);
  part.request.primary = study::kMetric;
  part.request.seeds = options.seeds.value_or(options.by_size<std::uint64_t>(2, 3, 3));
  part.request.tune_seeds = options.by_size<std::uint64_t>(1, 1, 2);
  return part;
}

Part cifar_part(const Options& options) {
  Part part = make_part("", "", options);
  part.problem = options.size == Size::quick ? "resnet20" : "resnet18";
  part.images = options.size == Size::quick ? 2000 : 0;
  part.batch = options.size == Size::quick ? 10 : 20;
  part.request.config.workers = options.workers.value_or(8);
  // 3,000 and 1,000 steps of 8 workers in the full form.
  part.passes = options.by_size(2.0, 3.0, 10.1);
  part.tune_passes = options.by_size(1.0, 1.0, 3.4);
  part.quick_passes = 2;
  part.request.tune_seeds = 1;
  return part;
}

std::vector<std::string> ratios_of(const Options& options, std::string quick, bool with_between) {
  if (options.size == Size::quick) return {std::move(quick)};
  if (with_between) return {"0.001", "0.003", "0.01"};
  return {"0.001", "0.01"};
}

Part text_part(const Options& options) {
  Part part = make_part("", "", options);
  part.request.config.workers = options.workers.value_or(8);
  part.request.config.validation = 0;  // the text has a part for it
  part.request.primary = study::kTestLoss;
  part.passes = options.by_size(1.0, 4.0, 20.0);
  part.tune_passes = options.by_size(0.5, 2.0, 8.0);
  part.quick_passes = 1;
  return part;
}

const study::Judged* Outcome::find(std::string_view method, std::string_view ratio) const {
  for (const study::Judged& one : judgement.groups) {
    const study::Group& group = one.choice.group;
    if (plan.methods[group.method_index].name() != method) continue;
    if (ratio.empty() || group.ratio.empty() || group.ratio == ratio) return &one;
  }
  return nullptr;
}

std::optional<double> Outcome::score(std::string_view method, std::string_view ratio) const {
  const study::Judged* const one = find(method, ratio);
  const study::Summary* const numbers = one == nullptr ? nullptr : one->find(plan.primary);
  return numbers == nullptr ? std::nullopt : numbers->mean;
}

std::optional<Difference> difference_of(const std::vector<std::optional<double>>& mine,
                                        const std::vector<std::optional<double>>& others, bool higher_is_better) {
  if (mine.empty() || mine.size() != others.size()) return std::nullopt;
  std::vector<double> differences;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (!mine[i] || !others[i]) return std::nullopt;
    differences.push_back(higher_is_better ? *mine[i] - *others[i] : *others[i] - *mine[i]);
  }
  const auto wins = std::count_if(differences.begin(), differences.end(), [](double one) { return one > 0; });
  return Difference{.mean = study::mean(differences),
                    .ci95 = study::confidence_interval(differences),
                    .seeds = differences.size(),
                    .wins = static_cast<std::size_t>(wins)};
}

std::optional<Difference> Outcome::difference(std::string_view method, std::string_view other,
                                              std::string_view ratio) const {
  const study::Judged* const one = find(method, ratio);
  const study::Judged* const two = find(other, ratio);
  if (one == nullptr || two == nullptr) return std::nullopt;
  const study::Summary* const mine = one->find(plan.primary);
  const study::Summary* const others = two->find(plan.primary);
  if (mine == nullptr || others == nullptr) return std::nullopt;
  return difference_of(mine->by_seed, others->by_seed, study::is_higher_better(plan, plan.primary));
}

std::optional<Difference> Outcome::difference_at_equal_bytes(std::string_view method, std::string_view other,
                                                             std::string_view ratio) const {
  const study::Judged* const one = find(method, ratio);
  const study::Judged* const two = find(other, ratio);
  if (one == nullptr || two == nullptr || !one->equal_bytes || !two->equal_bytes) return std::nullopt;
  return difference_of(one->equal_bytes->numbers.by_seed, two->equal_bytes->numbers.by_seed,
                       study::is_higher_better(plan, plan.primary));
}

std::string in_words(std::string_view mine, const std::optional<Difference>& difference, std::string_view other,
                     bool is_accuracy) {
  if (!difference) return fmt::format("{} cannot be compared with {}: a run diverged", mine, other);
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

const Outcome* find_part(const Outcomes& outcomes, std::string_view name) {
  for (const auto& one : outcomes) {
    if (one->part.name == name) return one.get();
  }
  return nullptr;
}

Result run_parts(std::vector<Part> parts, const Options& options,
                 const std::function<void(const Outcomes& outcomes, Result& result)>& judge) {
  check_names(parts, options);
  Outcomes outcomes;
  for (Part& part : parts) {
    if (is_wanted(part, options)) outcomes.push_back(run_part(std::move(part), options));
  }
  Result result;
  result.verdict = Verdict::not_judged;
  result.reason = "nothing was run";
  if (!outcomes.front()->results) return result;
  for (const auto& outcome : outcomes) {
    result.table += (result.table.empty() ? "" : "\n") + table_of(*outcome);
    add_numbers(*outcome, result.measured);
  }
  for (const auto& outcome : outcomes) {
    const std::uint64_t steps = outcome->plan.config.steps;
    if (steps >= outcome->quick_steps) continue;
    result.reason = fmt::format("too short to judge: --rounds {} is less than the {} of --quick in part {}", steps,
                                outcome->quick_steps, outcome->part.name);
    return result;
  }
  result.reason = "the parts that were run do not decide";
  judge(outcomes, result);
  for (const auto& outcome : outcomes) {
    const std::string words = study::unequal_lrs(outcome->plan);
    if (!words.empty()) result.conditions.push_back(fmt::format("{}: {}", outcome->part.name, words));
  }
  for (const auto& outcome : outcomes) {
    if (outcome->part.images == 0) continue;
    result.verdict = Verdict::not_judged;
    result.reason = "--quick trains a small network on few images: it shows that everything runs";
  }
  return result;
}

}  // namespace sparsewire::reproduce
