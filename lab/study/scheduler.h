// Runs of a study, side by side on the cores. Each has its workers on threads of its own and is deterministic, so what
// is beside it does not matter. A run that is in the folder already is read instead.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "loop/loop.h"
#include "problems/problem.h"
#include "study/plan.h"
#include "study/record.h"

namespace sparsewire::study {

// One run that is to be done.
struct Task {
  std::string phase;
  Cell cell;
  train::TrainConfig config;  // with the seed
  // Of pilots and probes, which do not do all steps of the configuration.
  std::optional<std::uint64_t> steps = {};
};

// What a user sees of it. THREADS: called by one thread at a time.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `was_there`: it was read from the folder.
  virtual void on_record(const Record& record, bool was_there) = 0;
  // Often. `steps`: done by this program, of all runs.
  virtual void on_steps(std::uint64_t steps) = 0;
};

// Not all runs are done: a signal came, or the time is over.
class Stopped : public std::runtime_error {
 public:
  explicit Stopped(bool by_signal)
      : std::runtime_error(by_signal ? "stopped by a signal" : "stopped after --max-hours"), by_signal_(by_signal) {}
  bool by_signal() const noexcept { return by_signal_; }

 private:
  bool by_signal_;
};

struct SchedulerOptions {
  std::string folder;                                                    // runs are kept in <folder>/runs
  unsigned jobs = 1;                                                     // runs at a time
  std::optional<std::chrono::steady_clock::time_point> last_start = {};  // no run starts later
  std::function<bool()> stop_requested = [] { return false; };           // then runs that are not finished are dropped
};

// A problem, and what it is worth before the first step.
struct LoadedProblem {
  // `initial_weights`: those of the plan.
  LoadedProblem(const train::TrainConfig& config, std::span<const float> initial_weights);

  std::uint64_t seed;
  std::unique_ptr<train::Problem> problem;
  Point start;
};

class Scheduler {
 public:
  // Removes what an interrupted study left behind in <folder>/runs.
  Scheduler(const Plan& plan, SchedulerOptions options, Watcher& watcher);

  // All records, in the order of the tasks; cells are as in the tasks. Tasks with the same configuration are run once.
  // Throws Stopped when all runs have ended; UsageError; std::runtime_error, for example if a disk is full.
  std::vector<Record> run(const std::vector<Task>& tasks);

 private:
  struct Job;  // a task and its record
  void work(std::vector<Job>& jobs);
  Job* next(std::vector<Job>& jobs);
  void do_job(Job& job);
  Record read(const Job& job) const;
  Record run_task(const Task& task, const std::string& id, LoadedProblem& loaded, const std::string& folder);
  void run_pilot(const Task& task, const train::Run& run, Record& record);
  void run_training(const Task& task, const train::Run& run, Record& record, std::vector<float>& weights);
  std::unique_ptr<LoadedProblem> take_problem(const train::TrainConfig& config);
  void give_back(std::unique_ptr<LoadedProblem> loaded);
  std::string path_of(const std::string& id) const;
  bool should_stop() const { return failed_ || options_.stop_requested(); }
  bool is_too_late() const;

  const Plan& plan_;
  SchedulerOptions options_;
  Watcher& watcher_;
  std::mutex mutex_;  // of everything below, and of the watcher
  std::vector<std::unique_ptr<LoadedProblem>> idle_;
  std::exception_ptr error_;         // the first one
  std::atomic<bool> failed_{false};  // there is an error: the other runs stop
  std::atomic<std::uint64_t> steps_{0};
};

}  // namespace sparsewire::study
