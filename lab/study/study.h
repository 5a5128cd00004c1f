// A whole study: pilots, tuning, choice, judging. Everything that is done is kept in a folder, so a study that was
// interrupted continues where it was, and ends with the same bytes.
//
//   plan.json       written before the first run
//   runs/<id>/      config.json, result.json, metrics.jsonl of each run
//   runs.csv, timings.csv, summary.json, summary.md, summary.tex, references.bib      written at the end
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "study/choice.h"
#include "study/plan.h"
#include "study/record.h"
#include "study/scheduler.h"
#include "study/tables.h"

namespace sparsewire::study {

// How many runs and steps there are. Tuning runs that --grow adds are not counted, until they are.
struct Work {
  std::uint64_t runs = 0;
  std::uint64_t steps = 0;
};

// Told about the study as a whole, too.
class StudyWatcher : public Watcher {
 public:
  // Before each phase: its name for people, and what is to be done from now on, this phase included.
  virtual void on_phase(const std::string& name, const Work& left) = 0;
  // What was decided on the way: cells that are left out or added.
  virtual void on_note(const std::string& note) = 0;
};

struct StudyOptions {
  std::string folder;
  unsigned jobs = 1;
  std::optional<double> max_hours = {};
  std::function<bool()> stop_requested = [] { return false; };
};

// Prepares the folder: makes it, and writes plan.json. Throws UsageError if it holds another study, with what differs,
// or something that is not a study.
void claim_folder(const std::string& folder, const Plan& plan);

// Throws UsageError as claim_folder() would, and writes nothing. A folder need not be there.
void check_folder(const std::string& folder, const Plan& plan);

// Runs what is not there yet. --grow adds cells to the plan. Throws as Scheduler::run.
// REQUIRES: claim_folder() was called; the folder is locked.
Results run_study(Plan& plan, const StudyOptions& options, StudyWatcher& watcher);

// Writes the files that are made at the end.
void write_results(const Results& results, const std::string& folder);

}  // namespace sparsewire::study
