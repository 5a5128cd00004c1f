#include "study/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "files/folder.h"
#include "loop/evaluation.h"
#include "loop/pilot.h"
#include "loop/run_or_fail.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/transport.h"

namespace sparsewire::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kUnfinished = ".unfinished-";

std::chrono::milliseconds deadline_of(const train::TrainConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(config.deadline * 1000) + 1);
}

double find_or_nan(const train::Evaluation& evaluation, const std::string& name) {
  return name.empty() ? kNotMeasured : evaluation.find(name).value_or(kNotMeasured);
}

}  // namespace

// In the order in which runs start: those with the same seed together, because they share the data.
struct Scheduler::Job {
  const Task* task = nullptr;
  std::string id;
  bool is_taken = false;
  std::optional<Record> record;
};

LoadedProblem::LoadedProblem(const train::TrainConfig& config, std::span<const float> initial_weights)
    : seed(config.seed), problem(train::make_problem(config.problem, train::problem_place(config))) {
  std::vector<float> weights(initial_weights.begin(), initial_weights.end());
  if (weights.empty()) {
    weights.resize(problem->layout().dim());
    problem->initial_weights(weights);
  }
  const train::Evaluation evaluation = train::evaluate(*problem, weights, /*with_train=*/true);
  start.train_loss = find_or_nan(evaluation, "train_loss");
  start.val_loss = find_or_nan(evaluation, "validation_loss");
  start.test_loss = find_or_nan(evaluation, "test_loss");
  start.metric = find_or_nan(evaluation, train::headline_of(*problem).metric);
}

Scheduler::Scheduler(const Plan& plan, SchedulerOptions options, Watcher& watcher)
    : plan_(plan), options_(std::move(options)), watcher_(watcher) {
  const std::string runs = options_.folder + "/runs";
  files::make_folder(runs);
  for (const fs::directory_entry& entry : fs::directory_iterator(runs)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) fs::remove_all(entry.path());
  }
}

std::string Scheduler::path_of(const std::string& id) const { return options_.folder + "/runs/" + id; }

bool Scheduler::is_too_late() const { return options_.last_start && Clock::now() > *options_.last_start; }

// Two methods may have the same configuration in a cell, and so share a run: it is that of the task here.
Record Scheduler::read(const Job& job) const {
  Record record = read_record(path_of(job.id));
  const bool is_training = job.task->phase == kTune || job.task->phase == kJudge;
  if (record.id != job.id || record.seed != job.task->config.seed ||
      run_id(record.config, is_training ? "training" : job.task->phase, plan_) != job.id) {
    throw UsageError(fmt::format("'{}' is of another run: remove it to run it again", path_of(job.id)));
  }
  record.cell = job.task->cell;
  return record;
}

std::vector<Record> Scheduler::run(const std::vector<Task>& tasks) {
  std::vector<std::string> ids;
  std::vector<Job> jobs;
  for (const Task& task : tasks) {
    const bool is_training = task.phase == kTune || task.phase == kJudge;
    ids.push_back(run_id(task.config, is_training ? "training" : task.phase, plan_));
    const auto same = std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) { return job.id == ids.back(); });
    if (same == jobs.end()) jobs.push_back({.task = &task, .id = ids.back(), .is_taken = false, .record = {}});
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.task->config.seed < b.task->config.seed; });
  for (Job& job : jobs) {
    if (!fs::exists(path_of(job.id))) continue;
    job.record = read(job);
    job.is_taken = true;
    watcher_.on_record(*job.record, /*was_there=*/true);
  }
  std::vector<std::thread> threads;
  const auto left = std::count_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.is_taken; });
  try {
    for (long i = 0; i < std::min<long>(left, std::max(1U, options_.jobs)); ++i) {
      threads.emplace_back([&] { work(jobs); });
    }
  } catch (const std::system_error&) {  // fewer will do
    if (threads.empty()) throw;
  }
  for (std::thread& thread : threads) thread.join();
  if (error_) std::rethrow_exception(error_);

  std::vector<Record> records;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Job& one) { return one.id == ids[i]; });
    if (!job->record) throw Stopped(options_.stop_requested());
    records.push_back(*job->record);
    records.back().cell = tasks[i].cell;
  }
  return records;
}

void Scheduler::work(std::vector<Job>& jobs) {
  try {
    while (Job* const job = next(jobs)) do_job(*job);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_ = true;
  }
}

Scheduler::Job* Scheduler::next(std::vector<Job>& jobs) {
  const std::lock_guard lock(mutex_);
  if (should_stop() || is_too_late()) return nullptr;
  const auto found = std::find_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.is_taken; });
  if (found == jobs.end()) return nullptr;
  found->is_taken = true;
  return &*found;
}

// What is returned is what was read back, so a resumed study has exactly the same numbers.
void Scheduler::do_job(Job& job) {
  const std::string aside = path_of(std::string(kUnfinished) + job.id);
  files::make_folder(aside);
  auto loaded = take_problem(job.task->config);
  const Record record = run_task(*job.task, job.id, *loaded, aside);
  const std::string metric = train::headline_of(*loaded->problem).metric;
  give_back(std::move(loaded));
  if (record.status.empty()) {  // it was asked to stop
    fs::remove_all(aside);
    return;
  }
  write_record(aside, record, metric);
  fs::rename(aside, path_of(job.id));
  files::sync_folder(options_.folder + "/runs");
  Record kept = read(job);
  const std::lock_guard lock(mutex_);
  watcher_.on_record(kept, /*was_there=*/false);
  job.record = std::move(kept);
}

std::unique_ptr<LoadedProblem> Scheduler::take_problem(const train::TrainConfig& config) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](auto& one) { return one->seed == config.seed; });
    if (found != idle_.end()) {
      auto loaded = std::move(*found);
      idle_.erase(found);
      return loaded;
    }
    if (idle_.size() >= options_.jobs) idle_.erase(idle_.begin());
  }
  auto loaded = std::make_unique<LoadedProblem>(config, plan_.initial_weights);
  const train::Problem& problem = *loaded->problem;
  if (problem.data_fingerprint() != plan_.data || problem.test_fingerprint() != plan_.test_data) {
    throw std::runtime_error("the data file was changed during the study: restore it, and the same command continues");
  }
  return loaded;
}

void Scheduler::give_back(std::unique_ptr<LoadedProblem> loaded) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(loaded));
}

// The status is empty if the run was asked to stop.
Record Scheduler::run_task(const Task& task, const std::string& id, LoadedProblem& loaded, const std::string& folder) {
  Record record;
  record.id = id;
  record.phase = task.phase;
  record.cell = task.cell;
  record.seed = task.config.seed;
  record.config = task.config;
  record.initial_train_loss = loaded.start.train_loss;
  record.curve = {loaded.start};
  train::TrainConfig config = task.config;
  config.metrics = folder + "/metrics.jsonl";
  std::ofstream(config.metrics).close();  // a pilot writes none
  std::vector<float> weights;             // after the last step
  const auto began = Clock::now();
  try {
    run_on_threads(
        static_cast<int>(config.workers),
        [&](Transport& transport) {
          train::Run run{.config = config, .problem = *loaded.problem, .transport = transport};
          run.initial_weights = plan_.initial_weights;
          run.stop_requested = [this] { return should_stop(); };
          Record ignored;
          std::vector<float> none;
          const bool is_root = transport.rank() == 0;
          if (is_root) {
            run.on_step = [&](const train::StepReport& report) {
              if (report.totals) record.totals = *report.totals;
              record.steps = report.step;
              const std::uint64_t steps = ++steps_;
              const std::unique_lock lock(mutex_, std::try_to_lock);
              if (lock) watcher_.on_steps(steps);
            };
          }
          if (task.phase == kPilot) {
            run_pilot(task, run, is_root ? record : ignored);
          } else {
            run_training(task, run, is_root ? record : ignored, is_root ? weights : none);
          }
        },
        deadline_of(config));
  } catch (const train::SharedError& error) {
    if (error.is_usage()) throw UsageError(error.what());
    if (should_stop()) return record;
    if (!error.diverged_at() && task.phase != kPilot) throw;
    // A pilot that could not measure a threshold writes nothing that could fail.
    record.status = error.diverged_at() ? kDiverged : kNoThreshold;
    record.diverged_at = error.diverged_at();
  }
  record.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (weights.empty()) return record;
  record.final_train_loss = loaded.problem->evaluate(train::Part::train, weights).loss;
  if (!(record.final_train_loss <= record.initial_train_loss)) record.status = kDiverged;
  return record;
}

void Scheduler::run_pilot(const Task& task, const train::Run& run, Record& record) {
  Spec sparsifier(task.config.sparsifier);
  const double ratio = sparsifier.number("ratio", kRatioRange).value();
  const train::Pilot pilot = train::run_pilot(run, ratio, task.steps);
  record.status = kFinished;
  record.lambda = pilot.lambda;
  record.downlink_lambda = pilot.downlink_lambda;
  record.steps = pilot.steps;
  record.totals = pilot.totals;
}

void Scheduler::run_training(const Task& task, const train::Run& run, Record& record, std::vector<float>& weights) {
  train::Run limited = run;
  std::uint64_t asked = 0;  // once in each step
  if (task.steps) {
    limited.stop_requested = [&] { return ++asked >= *task.steps || run.stop_requested(); };
  }
  train::Result result = train::train(limited);
  if (!result.finished && !(task.steps && result.step >= *task.steps)) return;
  record.status = kFinished;
  record.steps = result.step;
  record.totals = result.totals;
  record.weights_crc32c = result.weights_crc32c;
  if (!result.finished || !result.evaluation) return;
  record.val_loss = find_or_nan(*result.evaluation, "validation_loss");
  record.test_loss = find_or_nan(*result.evaluation, "test_loss");
  record.metric = find_or_nan(*result.evaluation, train::headline_of(run.problem).metric);
  if (run.problem.is_metric_of_samples()) {
    record.val_metric = find_or_nan(*result.evaluation, train::metric_name(run.problem, train::Part::validation));
  }
  weights = std::move(result.weights);
}

}  // namespace sparsewire::study
