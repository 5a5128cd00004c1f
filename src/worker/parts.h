// What a worker is made of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "sparsewire/sifter.h"
#include "sparsewire/worker.h"

namespace sparsewire {

struct SavedWorker;  // state.cc

// construct.cc: whether a full vector is no longer than frames of so many entries, up and down; and the codec it
// travels in.
bool is_dense_shorter(const WorkerConfig& config, double entries, std::uint64_t dim, int ranks);
std::string dense_codec(const WorkerConfig& config);

struct Worker::Parts {
  Parts(const WorkerConfig& config, Layout layout, Transport& transport);

  Layout layout;
  Transport& transport;
  std::uint32_t identity = 0;  // the same on all ranks, and different for each worker of theirs
  std::vector<float> weights;  // of all ranks; they add up to 1
  WorkerConfig config;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Exchange> dense_exchange;  // what `auto` may choose instead; else null
  bool goes_dense = false;                   // in the next step
  Sifter sifter;
  bool observes;            // only RegTop-k does, and it is not free
  bool counts_vary;         // a threshold's: it may be sparse in one step and dense in the next
  bool server_votes_alone;  // one server's threshold needs no vote

  bool usable = true;  // false inside a step, and after one that was not completed

  StepTrailer trailer;  // of this rank, in the step under way
  StepOutcome outcome;  // what the trailers of all ranks said
  SparseVector sent;
  std::vector<float> received;  // its values, as the others got them; empty: the same
  SparseVector total;
  std::vector<float> at_sent;
  StepStats stats;
  std::uint32_t checksum = 0;  // of all updates

  // The exchange of this step.
  Exchange& active_exchange() noexcept;

  // The stages of a step, in order.
  void begin(std::span<const float> update) const;
  void sift(const Gradient& gradient, const StepOptions& options);
  void exchange_all();
  void handle_failure(const Gradient& gradient, const StepOptions& options);
  void keep_rounding_loss();
  void observe();
  void vote_threshold();
  void scatter(std::span<float> update);
  void account();
  void compare_replicas();
  [[noreturn]] void throw_failure(const Failure& failure) const;

  // state.cc
  void share(const std::vector<SavedWorker>& saved);
};

}  // namespace sparsewire
