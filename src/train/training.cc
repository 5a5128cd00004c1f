// How a training begins and ends, and what it puts into a checkpoint.
#include "train/training.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "core/crc32c.h"
#include "core/state.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "train/checkpoint_files.h"
#include "train/run_or_fail.h"
#include "transport/all_gather_values.h"

namespace sparsewire::train {
namespace {

// Before the first step rather than at the first checkpoint.
void make_writable(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
  if (error) throw std::runtime_error(fmt::format("cannot write '{}': {}", folder, error.message()));
}

std::vector<std::byte> save(Optimiser& optimiser) {
  State state;
  optimiser.serialize(state);
  return std::move(state).bytes();
}

void load(Optimiser& optimiser, std::span<const std::byte> bytes) {
  State state(bytes);
  optimiser.serialize(state);
  state.finish();
}

// Bytes are added up; the error is the mean, and the loss that of rank 0.
Totals sum(const std::vector<Totals>& all) {
  Totals total{.loss = all[0].loss};
  for (const Totals& one : all) {
    total.bytes_up += one.bytes_up;
    total.bytes_down += one.bytes_down;
    total.bytes_served += one.bytes_served;
    total.total_error += one.total_error / static_cast<double>(all.size());
  }
  return total;
}

}  // namespace

Training::Training(const Run& run)
    : run_(run),
      config_(run.config),
      problem_(run.problem),
      transport_(run.transport),
      optimiser_(make_optimiser(config_.optimiser, problem_.layout().dim())),
      schedule_(make_schedule(config_.schedule, config_.lr, config_.steps)),
      worker_(worker_config(config_), problem_.layout(), transport_),
      holds_lr_(parse_feedback(config_.feedback).scale_by_lr),
      weights_(problem_.layout().dim()),
      gradient_(weights_.size()),
      update_(weights_.size()) {}

void Training::begin() {
  compare_configs();
  std::string chosen;
  run_or_fail_on_all(transport_, [&] {
    if (is_root() && !config_.checkpoint_dir.empty()) chosen = choose_checkpoint();
  });
  std::vector<std::byte> bytes(chosen.size());
  std::transform(chosen.begin(), chosen.end(), bytes.begin(), [](char letter) { return std::byte(letter); });
  transport_.broadcast(0, bytes);
  const std::string path(reinterpret_cast<const char*>(bytes.data()), bytes.size());

  run_or_fail_on_all(transport_, [&] {
    problem_.initial_weights(weights_);
    if (!path.empty()) resume_from(path);
    if (is_root() && !config_.metrics.empty()) metrics_.emplace(config_.metrics, step_);
  });
  if (config_.checkpoint_dir.empty()) return;
  checkpoints_.emplace(config_, data_, transport_, path.empty() ? std::nullopt : std::optional(step_));
}

// Processes may have been started with different options; what each of them does with files is its own affair.
void Training::compare_configs() {
  std::string all;
  for (const Setting& setting : settings()) {
    const std::string_view name = setting.option.name;
    const bool is_own = name == "json" || name == "metrics" || name == "deadline" || name == "quiet" || name == "data";
    if (!is_own) all += fmt::format("{}={}\n", name, shown(value_of(config_, setting)));
  }
  const std::vector<std::uint32_t> checksums = all_gather_values(transport_, crc32c(std::as_bytes(std::span(all))));
  const auto other = std::find_if(checksums.begin(), checksums.end(), [&](auto one) { return one != checksums[0]; });
  if (other == checksums.end()) return;
  throw SharedError(fmt::format("rank {} was started with other options than rank 0", other - checksums.begin()),
                    /*is_usage=*/true);
}

// Where to go on; empty: at the start. Throws UsageError.
std::string Training::choose_checkpoint() {
  const std::string& folder = config_.checkpoint_dir;
  make_writable(folder);
  lock_.emplace(folder);
  data_ = fingerprint(config_.data);  // once: the file may be long, and may change under our hands
  if (!config_.resume) {
    if (!has_checkpoints(folder)) return {};
    throw UsageError(
        fmt::format("'{}' has checkpoints of an earlier training: --resume goes on from them; to begin anew, remove "
                    "them or choose another folder",
                    folder));
  }
  const std::optional<Manifest> found = find_checkpoint(folder, run_.log);
  if (!found) {
    run_.log(fmt::format("no checkpoint in '{}' yet: beginning at step 0", folder));
    return {};
  }
  const std::string differs = difference(found->config, config_);
  if (!differs.empty()) throw UsageError(fmt::format("'{}' is of another training: {}", found->path, differs));
  if (found->data != data_) {
    throw UsageError(fmt::format("'{}' is of other data than '{}'", found->path, config_.data));
  }
  if (found->step > config_.steps) {
    throw UsageError(fmt::format("'{}' is beyond --steps {}", found->path, config_.steps));
  }
  run_.log(fmt::format("going on from '{}'", found->path));
  if (found->workers != static_cast<std::uint64_t>(transport_.size())) {
    run_.log(fmt::format(
        "it is of {} workers, and now there are {}: what the memories of the old ones still owe is shared out anew",
        found->workers, transport_.size()));
  }
  return found->path;
}

void Training::resume_from(const std::string& path) {
  // Workers that are threads come one by one: each looks at the states of all, which would fill the memory.
  static std::mutex one_by_one;
  const std::lock_guard lock(one_by_one);
  std::vector<RankState> saved = read_checkpoint(read_manifest(path));
  if (saved[0].weights.size() != weights_.size()) {
    throw UsageError(
        fmt::format("'{}' has {} weights, and the problem {}", path, saved[0].weights.size(), weights_.size()));
  }
  // With more workers than before some begin with the same local optimiser as others.
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const RankState& mine = saved[rank % saved.size()];
  load(*optimiser_, mine.optimiser.empty() ? saved[0].optimiser : mine.optimiser);
  weights_ = saved[0].weights;
  step_ = first_step_ = saved[0].step;

  std::vector<std::vector<std::byte>> workers;
  std::vector<Totals> totals;
  for (RankState& one : saved) {
    workers.push_back(std::move(one.worker));
    totals.push_back(one.totals);
  }
  worker_.load(workers);
  totals_ = totals[rank % totals.size()];
  if (totals.size() == static_cast<std::size_t>(transport_.size())) return;
  const Totals all = sum(totals);         // rank 0 keeps the totals of workers that no longer exist
  totals_.total_error = all.total_error;  // a mean
  totals_.bytes_up = is_root() ? all.bytes_up : 0;
  totals_.bytes_down = is_root() ? all.bytes_down : 0;
  totals_.bytes_served = is_root() ? all.bytes_served : 0;
}

// Updates are compared every so often, but what optimisers make of them is each rank's own.
std::uint32_t Training::compare_weights() {
  const std::vector<std::uint32_t> checksums =
      all_gather_values(transport_, crc32c(std::as_bytes(std::span(weights_))));
  const auto other = std::find_if(checksums.begin(), checksums.end(), [&](auto one) { return one != checksums[0]; });
  if (other == checksums.end()) return checksums[0];
  throw ReplicasDiffer(fmt::format("the weights of rank {} differ from those of rank 0", other - checksums.begin()));
}

void Training::write_checkpoint() {
  compare_weights();
  RankState mine{.step = step_, .weights = {}, .optimiser = {}, .worker = worker_.save(), .totals = totals_};
  if (is_root()) mine.weights = weights_;
  if (is_root() || is_local()) mine.optimiser = save(*optimiser_);
  checkpoints_->write(mine);
}

Result Training::finish() {
  const bool is_finished = step_ == config_.steps;
  run_or_fail_on_all(transport_, [&] {
    if (!pending_error_.empty()) throw std::runtime_error(pending_error_);
    if (!is_root() || !is_finished) return;
    if (!evaluation_) evaluation_ = problem_.evaluate(weights_);
    if (!std::isfinite(evaluation_->loss)) {
      throw std::runtime_error(divergence(fmt::format("the loss is {}", evaluation_->loss)));
    }
  });
  const std::uint32_t checksum = compare_weights();
  Result result{.finished = is_finished,
                .step = step_,
                .first_step = first_step_,
                .evaluation = evaluation_,
                .totals = sum(all_gather_values(transport_, totals_)),
                .weights_crc32c = checksum,
                .checkpoint = std::nullopt};
  if (checkpoints_ && checkpoints_->last()) result.checkpoint = checkpoints_->last_path();
  return result;
}

}  // namespace sparsewire::train
