// One rank of a training under way: what loop.cc steps through, and training.cc sets up and winds up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/folder_lock.h"
#include "sparsewire/worker.h"
#include "train/loop.h"
#include "train/optimiser.h"
#include "train/schedule.h"

namespace sparsewire::train {

class Training {
 public:
  explicit Training(const Run& run);

  Result run();

 private:
  void begin();          // at the start, or at a checkpoint
  void find_gradient();  // of this rank, from here on
  void exchange();
  void change_weights();
  void report();
  void write_if_due();
  Result finish();

  void compare_configs();
  std::uint32_t compare_weights();
  std::string choose_checkpoint();
  void resume_from(const std::string& path);
  void write_checkpoint();

  double batch_gradient(std::uint64_t number, std::span<const float> weights);
  void follow_local_steps();
  void clip();
  void add_to_totals();
  std::uint8_t flags() const;
  void compare_losses();
  void check_weights() const;
  [[noreturn]] void give_up(const std::string& why) const;
  std::string divergence(const std::string& why) const;

  bool is_root() const { return transport_.rank() == 0; }
  bool is_local() const { return config_.local_steps > 1; }

  const Run& run_;
  const TrainConfig& config_;
  Problem& problem_;
  Transport& transport_;
  std::unique_ptr<Optimiser> optimiser_;
  Schedule schedule_;
  Worker worker_;
  bool holds_lr_;  // the update is lr*gradient already

  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::vector<float> update_;
  std::vector<float> local_;      // weights on the way of local steps
  std::uint64_t step_ = 0;        // steps done
  std::uint64_t number_ = 0;      // of the step under way, or of the last one
  std::uint64_t first_step_ = 0;  // done by the training that this one goes on from
  double lr_ = 0;
  double batch_loss_ = std::numeric_limits<double>::quiet_NaN();  // of this rank
  Totals totals_;
  bool stopped_ = false;

  std::string data_;                       // fingerprint of the data, on rank 0 and where there are checkpoints
  std::optional<files::FolderLock> lock_;  // of rank 0, while it writes checkpoints there
  std::optional<Checkpoints> checkpoints_;
  std::optional<MetricsFile> metrics_;    // of rank 0, like the evaluation
  std::optional<Evaluation> evaluation_;  // of the last step, if there was one
  std::string pending_error_;             // what failed here while the others went on
};

}  // namespace sparsewire::train
