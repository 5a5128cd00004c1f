#include "study/estimate.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "loop/evaluation.h"
#include "loop/metrics.h"
#include "loop/run_or_fail.h"
#include "sparsewire/transport.h"
#include "study/cell_config.h"
#include "study/scheduler.h"

namespace sparsewire::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostSteps = 20;
constexpr std::uint64_t kFewestSteps = 2;  // the first one has the start of a run in it

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// Steps of one group, as they go when as many runs as in the study go side by side.
struct Timing {
  std::uint64_t steps = 0;       // that were timed
  double step = 0;               // seconds
  double start = 0;              // what a run takes beyond that until its first step is done
  std::uint64_t bytes = 0;       // of all workers in all steps, up and down
  std::uint64_t line_bytes = 0;  // of metrics.jsonl, for an evaluation
};

// At most `most` steps. REQUIRES: config.steps is larger, since the last step is evaluated.
Timing time_group(const Plan& plan, const train::TrainConfig& config, std::uint64_t most,
                  std::vector<std::unique_ptr<LoadedProblem>>& problems, const StudyOptions& options,
                  std::chrono::milliseconds longest) {
  Timing timing;
  const auto began = Clock::now();
  double first_end = 0;  // of a step, in seconds
  double last_end = 0;
  const auto run_one = [&](LoadedProblem& loaded, bool is_first) {
    run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
      std::uint64_t steps = 0;  // this one included
      train::Run run{.config = config, .problem = *loaded.problem, .transport = transport};
      run.initial_weights = plan.initial_weights;
      run.stop_requested = [&] {
        const bool is_late = Clock::now() - began >= longest;
        return ++steps >= most || (is_late && steps >= kFewestSteps) || options.stop_requested();
      };
      if (is_first && transport.rank() == 0) {
        run.on_step = [&](const train::StepReport& report) {
          last_end = seconds_since(began);
          if (++timing.steps == 1) first_end = last_end;
          train::StepReport full = report;
          full.evaluation = train::Evaluation{.numbers = {{"validation_loss", 1.0 / 3}, {"test_loss", 1.0 / 3}}};
          full.totals = train::Totals{.bytes_up = 1'000'000'000, .bytes_down = 1'000'000'000};
          timing.line_bytes = train::shown(train::step_json(full)).size() + 1;
        };
      }
      const train::Result result = train::train(run);
      if (is_first && transport.rank() == 0) timing.bytes = result.totals.bytes_up + result.totals.bytes_down;
    });
  };
  std::vector<std::exception_ptr> errors(problems.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        run_one(*problems[i], i == 0);
      } catch (const train::SharedError& error) {  // what diverges that early takes less time than all
        if (!error.diverged_at()) errors[i] = std::current_exception();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  threads.clear();  // waits for them
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  if (options.stop_requested()) throw Stopped(/*by_signal=*/true);
  if (timing.steps > 1) {
    timing.step = (last_end - first_end) / static_cast<double>(timing.steps - 1);
    timing.start = std::max(0.0, first_end - timing.step);
  } else {
    timing.steps = 1;
    timing.step = seconds_since(began);
  }
  return timing;
}

// Of one evaluation in seconds; they take the same time with every method.
struct EvaluationTimes {
  double in_training = 0;
  double at_the_end = 0;  // also on the training data
};

EvaluationTimes time_evaluations(train::Problem& problem, bool eval_train) {
  EvaluationTimes times;
  std::vector<float> weights(problem.layout().dim());
  problem.initial_weights(weights);
  const auto evaluated = Clock::now();
  train::evaluate(problem, weights, eval_train);
  times.in_training = seconds_since(evaluated);
  const auto trained = Clock::now();
  problem.evaluate(train::Part::train, weights);
  times.at_the_end = times.in_training + seconds_since(trained);
  return times;
}

}  // namespace

Estimate estimate(const Plan& plan, const StudyOptions& options, const EstimateOptions& how) {
  constexpr std::uint64_t kFilesOfRun = 12'000;  // config.json and result.json, in whole blocks of a file system
  const auto began = Clock::now();
  std::vector<std::unique_ptr<LoadedProblem>> problems;
  train::TrainConfig first = plan.config;
  first.seed = pilot_seed(plan);
  for (unsigned i = 0; i < std::max(1U, options.jobs); ++i)
    problems.push_back(std::make_unique<LoadedProblem>(first, plan.initial_weights));
  const double loading = seconds_since(began);
  const EvaluationTimes evaluation = time_evaluations(*problems[0]->problem, plan.config.eval_train);
  // With a budget of bytes it is not known yet how many steps a run has.
  const std::uint64_t most = plan.budget_bytes ? kMostSteps : std::min(kMostSteps, plan.config.steps);

  Estimate all;
  double seconds = loading * static_cast<double>(plan.seeds.size() + plan.tune_seeds.size());
  const std::vector<Group> all_groups = groups(plan);
  for (std::size_t i = 0; i < all_groups.size(); ++i) {
    const Group& group = all_groups[i];
    how.on_method(i + 1, all_groups.size());
    train::TrainConfig config;
    std::uint64_t cells = 0;
    std::uint64_t pilots = 0;  // steps
    for (const Cell& cell : plan.cells) {
      if (!is_of(cell, group)) continue;
      if (cells++ == 0) config = config_of(plan, cell, pilot_seed(plan));
      if (!plan.methods[cell.method_index].needs_pilot()) continue;
      ++all.pilots.runs;
      pilots += pilot_steps(config);
    }
    config.eval_every = 0;
    config.steps = std::max(config.steps, most + 1);
    const Timing timing = time_group(plan, config, most, problems, options, how.longest);
    all.fewest_steps = i == 0 ? timing.steps : std::min(all.fewest_steps, timing.steps);
    all.most_steps = std::max(all.most_steps, timing.steps);

    const std::uint64_t steps = plan.budget_bytes && timing.bytes > 0
                                    ? steps_within(*plan.budget_bytes, timing.bytes, timing.steps)
                                    : plan.config.steps;
    config = plan.config;
    set_steps(config, steps);
    const std::uint64_t evaluations = config.eval_every == 0 ? 1 : steps / config.eval_every + 1;
    const std::uint64_t tuning = cells * plan.tune_seeds.size();
    const std::uint64_t runs = tuning + plan.seeds.size();
    const std::uint64_t probes = plan.budget_bytes ? cells : 0;
    all.pilots.steps += pilots;
    all.probes.runs += probes;
    all.probes.steps += probes * kProbeSteps;
    all.tuning.runs += tuning;
    const std::uint64_t tune_steps = plan.tune_steps.value_or(steps);
    all.tuning.steps += tuning * tune_steps;
    all.judging.runs += plan.seeds.size();
    all.judging.steps += plan.seeds.size() * steps;
    seconds +=
        (timing.step *
             static_cast<double>(pilots + probes * kProbeSteps + tuning * tune_steps + plan.seeds.size() * steps) +
         timing.start * static_cast<double>(runs) + evaluation.in_training * static_cast<double>(runs * evaluations) +
         evaluation.at_the_end * static_cast<double>(runs)) /
        static_cast<double>(problems.size());
    all.disk_bytes += runs * (kFilesOfRun + evaluations * timing.line_bytes) + probes * kFilesOfRun;
  }
  all.disk_bytes += all.pilots.runs * kFilesOfRun;
  all.hours = seconds / 3600;
  return all;
}

}  // namespace sparsewire::study
