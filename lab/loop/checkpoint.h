// Checkpoints, from which a training can be resumed. A checkpoint is a folder:
//
//   DIR/step-00000100/model.state       the weights
//                     rank-0.state ...  the state of each worker: its memories, also as a server, and its optimiser
//                     manifest.json     the configuration and the checksums of the other files; rank 0 writes it last
//
// A folder without a manifest is not a checkpoint, so a kill at any moment leaves the last good one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loop/config.h"
#include "loop/totals.h"
#include "sparsewire/transport.h"

namespace sparsewire::train {

// What one rank puts into a checkpoint.
struct RankState {
  std::uint64_t step = 0;
  std::vector<float> weights;         // only on rank 0: the others have the same
  std::vector<std::byte> optimiser;   // empty: the same as on rank 0
  std::vector<std::byte> outer = {};  // the outer optimiser, only on rank 0
  std::vector<std::byte> worker;
  std::vector<float> problem = {};  // Problem::state()
  Totals totals;
};

// Writes checkpoints into a folder, all ranks together, and removes old ones.
class Checkpoints {
 public:
  // `changes`: Manifest::changes. `last`: the step of the checkpoint that was resumed from.
  Checkpoints(const TrainConfig& config, const Problem& problem, Json changes, Transport& transport,
              std::optional<std::uint64_t> last);

  // Collective. Throws SharedError on all ranks if one cannot write; older checkpoints are unchanged then.
  // `missing_metrics`, on rank 0: Manifest::missing_metrics.
  void write(RankState& mine, const Json& missing_metrics);

  // The step of the newest checkpoint, and its folder.
  std::optional<std::uint64_t> last() const noexcept { return last_; }
  std::string last_path() const;

 private:
  void remove_others(std::uint64_t newest) const;

  const TrainConfig& config_;
  const Problem& problem_;
  Json changes_;
  Transport& transport_;
  std::optional<std::uint64_t> last_;
};

// What a checkpoint says about itself.
struct Manifest {
  std::string path;
  std::uint64_t step = 0;
  std::uint64_t workers = 0;
  TrainConfig config;
  std::string data;       // Problem::data_fingerprint()
  std::string test_data;  // Problem::test_fingerprint(); since 0.4.0
  Json files;             // {"rank-0.state": {"bytes": 1234, "crc32c": "01234567"}, ...}
  // Every change of options in mid-training, after which step and what: [{"step": 100, "changed": {"lr": {"from": 0.1,
  // "to": 0.01}}}, ...].
  Json changes = Json::array();
  // Lines of metrics up to this step that could not be written, as on a full disk; since 0.7.1.
  Json missing_metrics = Json::array();
};

// The newest checkpoint whose files are all undamaged; damaged ones are reported to `log`. Nothing if the folder has no
// checkpoints. Throws UsageError if all of them are damaged.
std::optional<Manifest> find_checkpoint(const std::string& folder, const std::function<void(const std::string&)>& log);
// Whether the folder has any checkpoint, damaged or not.
bool has_checkpoints(const std::string& folder);

// The states of all ranks, in rank order. Throws UsageError.
std::vector<RankState> read_checkpoint(const Manifest& manifest);

}  // namespace sparsewire::train
