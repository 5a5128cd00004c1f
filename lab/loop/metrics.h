// The metrics file: a JSON line for each evaluation, or for each step, written when the step ends. It can be followed
// while it grows. A resumed training removes the lines after its checkpoint first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loop/config.h"
#include "loop/evaluation.h"
#include "loop/totals.h"
#include "sparsewire/worker.h"

namespace sparsewire::train {

// A step, as rank 0 knows it.
struct StepReport {
  std::uint64_t step = 0;  // steps done, this one included
  double loss = 0;         // of this step's batches: the mean over all workers
  double lr = 0;
  const StepStats& stats;
  std::uint64_t ns_gradient = 0;  // how long this took
  std::uint64_t ns_apply = 0;
  std::optional<Evaluation> evaluation = {};
  std::optional<Totals> totals = {};                 // of all workers; at evaluations
  std::optional<CompressionError> compression = {};  // every --measure-every steps
  double seconds = 0;                                // since the training began
  std::uint64_t steps = 0;                           // that the training is to have
};

// With the keys that docs/guides/training.md lists.
Json step_json(const StepReport& report);

class MetricsFile {
 public:
  // Keeps the lines of steps 1 ... `keep_until`, and removes all others, also incomplete ones; with 0 it removes all. A
  // change after step `keep_until` is removed too: the checkpoint of that step is older.
  // Throws UsageError if another training is writing the file, or if it has something that does not begin with a line
  // of metrics; then it is unchanged.
  // All functions throw std::runtime_error: "cannot write 'm.jsonl': No space left on device".
  MetricsFile(std::string path, std::uint64_t keep_until);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const StepReport& report) { write(step_json(report)); }
  // `seconds` of the last line that was kept, or was missing; 0 if there is none.
  double seconds() const noexcept { return seconds_; }
  // Writes those of these lines that come after the last one that was kept: what an earlier run could not write.
  void write_missing(const Json& lines);
  // In one line. REQUIRES: it has the key "step"; or, if options changed after that step, "changed" too.
  void write(const Json& json);

 private:
  void claim_and_cut_back(std::uint64_t keep_until);
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int file_ = -1;
  std::uint64_t last_step_ = 0;  // of the lines that were kept
  double seconds_ = 0;
};

// Whether the file is a regular one, and empty or begins with a line of metrics.
bool is_metrics_file(const std::string& path);

// How many bytes of `lines` are complete lines of steps 1 ... `keep_until`, without changes after the last of them.
std::size_t bytes_until(std::string_view lines, std::uint64_t keep_until);

}  // namespace sparsewire::train
