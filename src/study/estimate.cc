#include "study/estimate.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "sparsewire/transport.h"
#include "study/cell_config.h"
#include "study/scheduler.h"
#include "train/evaluation.h"
#include "train/metrics.h"
#include "train/run_or_fail.h"

namespace sparsewire::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kEstimateSteps = 20;

// Steps of one group, as they go when as many runs as in the study go side by side.
struct Timing {
  double step = 0;               // seconds
  double evaluation = 0;         // of those that are made in mid-training
  double final_evaluation = 0;   // also on the training data
  std::uint64_t bytes = 0;       // of all workers in all steps, up and down
  std::uint64_t line_bytes = 0;  // of metrics.jsonl, for an evaluation
};

Timing time_group(const train::TrainConfig& config, std::vector<std::unique_ptr<LoadedProblem>>& problems,
                  const StudyOptions& options) {
  Timing timing;
  const auto seconds_since = [](Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
  };
  const auto run_one = [&](LoadedProblem& loaded, bool is_first) {
    run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
      std::uint64_t asked = 0;
      train::Run run{.config = config, .problem = *loaded.problem, .transport = transport};
      run.stop_requested = [&] { return ++asked >= kEstimateSteps || options.stop_requested(); };
      if (is_first && transport.rank() == 0) {
        run.on_step = [&](const train::StepReport& report) {
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
  const auto began = Clock::now();
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        run_one(*problems[i], i == 0);
      } catch (const train::SharedError& error) {  // what diverges in 20 steps takes less time than all
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
  timing.step = seconds_since(began) / static_cast<double>(kEstimateSteps);
  train::Problem& problem = *problems[0]->problem;
  std::vector<float> weights(problem.layout().dim());
  problem.initial_weights(weights);
  const auto evaluated = Clock::now();
  train::evaluate(problem, weights, config.eval_train);
  timing.evaluation = seconds_since(evaluated);
  const auto trained = Clock::now();
  problem.evaluate(train::Part::train, weights);
  timing.final_evaluation = timing.evaluation + seconds_since(trained);
  return timing;
}

}  // namespace

Estimate estimate(const Plan& plan, const StudyOptions& options) {
  constexpr std::uint64_t kFilesOfRun = 12'000;  // config.json and result.json, in whole blocks of a file system
  const auto began = Clock::now();
  std::vector<std::unique_ptr<LoadedProblem>> problems;
  train::TrainConfig first = plan.config;
  first.seed = pilot_seed(plan);
  for (unsigned i = 0; i < std::max(1U, options.jobs); ++i) problems.push_back(std::make_unique<LoadedProblem>(first));
  const double loading = std::chrono::duration<double>(Clock::now() - began).count();

  Estimate all;
  double seconds = loading * static_cast<double>(plan.seeds.size() + plan.tune_seeds.size());
  for (const Group& group : groups(plan)) {
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
    config.steps = std::max(config.steps, kEstimateSteps + 1);  // the last step would be evaluated
    const Timing timing = time_group(config, problems, options);

    const std::uint64_t steps = plan.budget_bytes && timing.bytes > 0
                                    ? steps_within(*plan.budget_bytes, timing.bytes, kEstimateSteps)
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
    seconds += (timing.step * static_cast<double>(pilots + probes * kProbeSteps + tuning * tune_steps +
                                                  plan.seeds.size() * steps) +
                timing.evaluation * static_cast<double>(runs * evaluations) +
                timing.final_evaluation * static_cast<double>(runs)) /
               static_cast<double>(problems.size());
    all.disk_bytes += runs * (kFilesOfRun + evaluations * timing.line_bytes) + probes * kFilesOfRun;
  }
  all.disk_bytes += all.pilots.runs * kFilesOfRun;
  all.hours = seconds / 3600;
  return all;
}

}  // namespace sparsewire::study
