// Where a training can go on from. A checkpoint is a folder:
//
//   DIR/step-00000100/model.state       the weights
//                     rank-0.state ...  what each worker holds: its memory, as a server too; its optimiser
//                     manifest.json     the configuration, and the checksums of the others: written last, by rank 0
//
// A folder without a manifest is none: so a kill at any moment leaves the last good one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "sparsewire/transport.h"
#include "train/config.h"

namespace sparsewire::train {

// Kept by each rank since the first step.
struct Totals {
  std::uint64_t bytes_up = 0;
  std::uint64_t bytes_down = 0;
  std::uint64_t bytes_served = 0;
  double total_error = 0;                                  // sum of StepStats::memory_norm2
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step
};

// What one rank puts into a checkpoint.
struct RankState {
  std::uint64_t step = 0;
  std::vector<float> weights;        // of rank 0; the others' are the same
  std::vector<std::byte> optimiser;  // empty: the same as that of rank 0
  std::vector<std::byte> worker;
  Totals totals;
};

// Writes checkpoints into a folder, all ranks together, and removes old ones.
class Checkpoints {
 public:
  // `data`: fingerprint() of the data, on rank 0. `last`: the step of the checkpoint that was resumed from.
  Checkpoints(const TrainConfig& config, std::string data, Transport& transport, std::optional<std::uint64_t> last);

  // Collective. Throws SharedError on all ranks if one cannot write: then the older ones are as they were.
  void write(RankState& mine);

  // The step of the newest one, and where it is.
  std::optional<std::uint64_t> last() const noexcept { return last_; }
  std::string last_path() const;

 private:
  void remove_others(std::uint64_t newest) const;

  const TrainConfig& config_;
  std::string data_;
  Transport& transport_;
  std::optional<std::uint64_t> last_;
};

// A checkpoint that was found whole.
struct Manifest {
  std::string path;
  std::uint64_t step = 0;
  std::uint64_t workers = 0;
  TrainConfig config;
  std::string data;  // fingerprint() of the data
  Json files;        // {"rank-0.state": {"bytes": 1234, "crc32c": "01234567"}, ...}
};

// The newest one whose files are all as they were written. What is damaged is told to `log`. Nothing if there is none.
// Throws UsageError if there are some and all are damaged.
std::optional<Manifest> find_checkpoint(const std::string& folder, const std::function<void(const std::string&)>& log);
// Whether there is a manifest of one, whole or not.
bool has_checkpoints(const std::string& folder);

// Size and checksum of a file; empty if there is no name of one. Throws UsageError.
std::string fingerprint(const std::string& path);

// Everything in it, in the order of ranks. Throws UsageError.
std::vector<RankState> read_checkpoint(const Manifest& manifest);

}  // namespace sparsewire::train
