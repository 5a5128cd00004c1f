// The metrics file: one JSON line for each step, written as the step ends. A file can be followed while it grows, and
// what a kill leaves behind is cut back when the training goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sparsewire/worker.h"
#include "train/config.h"
#include "train/problem.h"

namespace sparsewire::train {

// What is known of a step, on rank 0.
struct StepReport {
  std::uint64_t step = 0;  // steps done, this one included
  double loss = 0;         // the mean over all workers' batches
  double lr = 0;
  const StepStats& stats;
  std::optional<Evaluation> evaluation = {};
  std::string_view metric = {};  // name of Evaluation::metric
};

// The keys that docs/train.md promises.
Json step_json(const StepReport& report);

class MetricsFile {
 public:
  // Keeps the lines of steps 1 ... `keep_until` if the file has them, and drops all others, also half ones. With 0 it
  // begins anew. All functions throw std::runtime_error: "cannot write 'm.jsonl': No space left on device".
  MetricsFile(std::string path, std::uint64_t keep_until);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void write(const StepReport& report);

 private:
  void cut_back(std::uint64_t keep_until);
  [[noreturn]] void fail(int error) const;

  std::string path_;
  int file_ = -1;
};

// How many bytes of `lines` belong to whole lines of steps 1 ... `keep_until`.
std::size_t bytes_until(std::string_view lines, std::uint64_t keep_until);

}  // namespace sparsewire::train
