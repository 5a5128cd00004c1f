// What a worker consists of.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/value_format.h"
#include "exchange/exchange.h"
#include "sparsewire/sifter.h"
#include "sparsewire/worker.h"
#include "sparsify/device_memory.h"
#include "transport/control_gather.h"

namespace sparsewire {

struct SavedWorker;  // state.cc

// What `auto` decides by: the bits of a step with frames, and with full vectors. construct.cc.
struct StepCost {
  std::uint64_t dim = 0;
  int ranks = 1;
  ValueBits value_bits;                 // of an uplink value
  ValueBits union_bits;                 // of a value of the union, where that is sent back
  double dense_value_bits = 32;         // of a value of a full vector
  std::optional<double> downlink_bits;  // of the answers of all servers; nothing: they send the union

  // Whether full vectors are no longer than frames, if each rank sends so many entries.
  bool is_dense_shorter(double entries) const;
};

struct Worker::Parts {
  Parts(const WorkerConfig& config, Layout layout, Transport& transport);

  Layout layout;
  Transport& transport;
  ControlGather control;
  std::uint32_t identity = 0;  // the same on all ranks, and different for each of their workers
  std::vector<float> weights;  // of all ranks; they add up to 1
  std::string given_exchange;  // as the caller gave it
  WorkerConfig config;         // with `auto` and an empty downlink_codec replaced
  std::unique_ptr<Exchange> exchange;
  Sifter sifter;
  bool observes;     // the sparsifier learns from the update, which is not free: only RegTop-k does
  bool counts_vary;  // the number of entries changes from step to step: only a threshold's does

  // With exchange `auto` only.
  std::unique_ptr<Exchange> dense_exchange;  // used instead of `exchange` when it is shorter; else null
  std::optional<StepCost> cost;
  bool goes_dense = false;  // in the next step

  bool usable = true;             // false in a step, and after one that was not completed
  bool has_begun = false;         // between begin_step() and finish_step()
  bool can_take_back = false;     // a step was finished, and nothing came after it
  std::uint64_t step_number = 0;  // of the step under way, or the last one; the first is 0

  Gradient gradient;            // of the step under way, or the last one; borrowed
  StepOptions options;          // of that step
  StepTrailer trailer;          // of this rank, in the step under way
  bool has_sifted = false;      // the sifter has to take the step back if it fails
  std::exception_ptr thrown;    // by this rank before the exchange
  StepOutcome outcome;          // the trailers of all ranks, combined
  SparseVector sent;            // empty if the entries became a frame on a device
  std::vector<float> received;  // the values of `sent` as the other ranks decoded them; empty: the same
  bool has_swapped = false;     // `received` and the values of `sent` have changed places
  SparseVector total;
  DeviceSum* sum = nullptr;  // where the update is, if it is on a device; `total` may be empty then
  Device sum_device;
  std::vector<float> at_sent;           // the update at the entries of `sent`
  std::vector<std::uint8_t> came_back;  // whether they are in it; empty: all are
  StepStats stats;
  std::uint32_t checksum = 0;  // of all updates so far

  std::unique_ptr<DeviceArrays> arrays;  // null until an array is on a device
  Device arrays_device;

  // For take_back_step(): what was before the last step.
  StepStats stats_before;
  std::uint32_t checksum_before = 0;
  bool went_dense = false;               // the last step used dense_exchange
  std::vector<std::uint32_t> checksums;  // of all ranks, where they were compared

  // The exchange of this step.
  Exchange& active_exchange() noexcept;

  // The stages of a step, in order.
  void check_usable() const;
  void sift();
  void take_weight();
  void exchange_all();
  void handle_failure();
  void keep_rounding_loss();
  void observe();
  void vote_threshold();
  void account();
  void compare_replicas();
  [[noreturn]] void throw_failure(const Failure& failure) const;

  void check_between_steps(const char* what) const;
  void undo_sift();

  // update.cc
  DeviceArrays& arrays_of(Device device);
  bool has_update_on(Device device) const noexcept { return sum != nullptr && sum_device == device; }
  void bring_update();

  // adopt.cc
  void give_away(const TensorRange& tensor);
  void set_step(std::uint64_t step);

  // state.cc
  void forget_last_round();
  void redistribute(const std::vector<SavedWorker>& saved);
};

}  // namespace sparsewire
