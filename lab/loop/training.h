// One rank of a training. Its steps are in loop.cc, how it starts and ends in training.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/lock.h"
#include "loop/loop.h"
#include "loop/replica.h"
#include "loop/schedule.h"
#include "sparsewire/worker.h"

namespace sparsewire::train {

// Collective. Throw SharedError on all ranks if they have loaded different libraries, or have different data.
void compare_plugins(Transport& transport);
void compare_data(const Problem& problem, Transport& transport);

class Training {
 public:
  explicit Training(const Run& run);

  Result run();

 private:
  void begin();  // at step 0 or from a checkpoint
  void find_gradient();
  void exchange();
  void change_weights();
  void report();
  void write_if_due();
  Result finish();

  void compare_configs();
  std::uint32_t compare_weights();
  void take_initial_weights();
  std::string choose_checkpoint();
  void resume_from(const Manifest& manifest);
  void load(const Manifest& manifest);
  void load_state(std::span<const RankState> saved);
  void average_state();
  void write_checkpoint();

  void follow_local_steps();
  std::uint8_t flags() const;
  void compare_losses();
  void check_weights();
  void check_evaluation();
  [[noreturn]] void give_up(const std::string& why) const;
  double seconds() const;

  bool is_root() const { return transport_.rank() == 0; }
  bool is_local() const { return config_.local_steps > 1; }

  const Run& run_;
  const TrainConfig& config_;
  Problem& problem_;
  Transport& transport_;
  std::unique_ptr<Replica> replica_;  // weights, gradient and optimiser
  Schedule schedule_;
  double weight_;  // of this worker
  Worker worker_;
  bool holds_lr_;  // the update contains the learning rate already

  std::uint64_t step_ = 0;        // steps done
  std::uint64_t number_ = 0;      // number of the current step, counted from 1
  std::uint64_t first_step_ = 0;  // steps done by the training that was resumed
  double lr_ = 0;
  std::uint64_t ns_gradient_ = 0;  // until the gradient of the last step was there
  std::uint64_t ns_apply_ = 0;     // until its update was applied, or queued on the device
  double batch_loss_ = std::numeric_limits<double>::quiet_NaN();  // on this rank
  Totals totals_;
  bool stopped_ = false;
  std::chrono::steady_clock::time_point began_;  // of the first step of this run
  double seconds_before_ = 0;                    // of the training that was resumed, as its metrics say

  std::optional<files::FolderLock> lock_;  // on rank 0: of the folder of checkpoints
  std::optional<Checkpoints> checkpoints_;
  Json changes_ = Json::array();                 // Manifest::changes
  std::optional<MetricsFile> metrics_;           // on rank 0
  Json missing_metrics_ = Json::array();         // on rank 0: Manifest::missing_metrics
  std::optional<CompressionError> compression_;  // of this step
  std::optional<Evaluation> evaluation_;         // on rank 0: of the last step, if it was evaluated
  std::string pending_error_;                    // what failed on this rank; the others learn of it with the next step
};

}  // namespace sparsewire::train
