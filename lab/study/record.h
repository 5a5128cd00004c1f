// What is kept of one run: runs/<id>/config.json, result.json and metrics.jsonl. The folder is written under another
// name and renamed when it is whole, so each run is there or not.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/config.h"
#include "loop/totals.h"
#include "study/plan.h"

namespace sparsewire::study {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// One evaluation. NaN: not measured, or not finite.
struct Point {
  std::uint64_t step = 0;
  double train_loss = kNotMeasured;
  double val_loss = kNotMeasured;
  double test_loss = kNotMeasured;
  double metric = kNotMeasured;  // on test data, else validation data, else training data
  std::uint64_t bytes = 0;       // of all workers, up and down, from step 0
  std::uint64_t paper_bits = 0;
};

inline constexpr const char* kPilot = "pilot";
inline constexpr const char* kProbe = "probe";  // for --budget-bytes: how many bytes a step has
inline constexpr const char* kTune = "tune";
inline constexpr const char* kJudge = "judge";
inline constexpr const char* kFinished = "finished";
inline constexpr const char* kDiverged = "diverged";
inline constexpr const char* kNoThreshold = "no_threshold";  // of a pilot: all gradients were zero

struct Record {
  std::string id;
  std::string phase;  // pilot, probe, tune or judge
  Cell cell;
  std::uint64_t seed = 0;
  train::TrainConfig config;  // of this run: the seed, the specs with their ratio or lambda
  std::string status;         // finished; or diverged: not finite, or the final training loss is above the initial
  std::optional<std::uint64_t>
      diverged_at;          // the step in which something was not finite; nothing if all steps were done
  std::uint64_t steps = 0;  // done
  double initial_train_loss = kNotMeasured;
  double final_train_loss = kNotMeasured;
  double val_loss = kNotMeasured;  // after the last step; NaN if it was not reached
  double test_loss = kNotMeasured;
  double metric = kNotMeasured;
  double val_metric = kNotMeasured;         // on validation data
  train::Totals totals;                     // of a run that was not finite: until the last evaluation
  double peak_memory_norm2 = kNotMeasured;  // the largest of all workers and steps
  std::uint32_t weights_crc32c = 0;
  double seconds = 0;            // for timings.csv only
  std::optional<double> lambda;  // of a pilot: what was measured
  std::optional<double> downlink_lambda;
  std::vector<Point> curve;  // the first is step 0. Of pilots: only that

  // The final value of a measure (plan.h), by its name.
  double measure(std::string_view name) const;
  bool has_diverged() const noexcept { return status == kDiverged; }
  std::uint64_t bytes() const noexcept { return totals.bytes_up + totals.bytes_down; }
  // The entries that workers sent over those that the ratio asks for. REQUIRES: it has steps, and the cell a ratio.
  double sent_of_asked() const noexcept { return mean_entries(totals.entries_up) / static_cast<double>(cell.k); }
  // One of its totals of entries, for each worker and step. REQUIRES: it has steps.
  double mean_entries(std::uint64_t entries) const noexcept {
    return static_cast<double>(entries) / static_cast<double>(steps * config.workers);
  }
};

// The value of a measure in one evaluation, by its name. REQUIRES: it is not val_metric.
double measure(const Point& point, std::string_view name);

// Names a run by what its results depend on: its configuration, and the contents of the data and of given weights. 16
// hexadecimal digits. `what`: the phase where it makes a difference, as a pilot is no training.
std::string run_id(const train::TrainConfig& config, std::string_view what, const Plan& plan);

// Writes config.json and result.json into the folder, beside metrics.jsonl, and makes all of it durable.
// REQUIRES: the first point of the curve is there; the others are in metrics.jsonl. `metric`: its name there.
void write_record(const std::string& folder, const Record& record, const std::string& metric);

// The same again. Cell::method_index is not in the files. Throws UsageError if the folder is damaged.
Record read_record(const std::string& folder);

}  // namespace sparsewire::study
