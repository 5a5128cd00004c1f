// What a worker is made of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "sparsewire/sifter.h"
#include "sparsewire/worker.h"

namespace sparsewire {

struct SavedWorker;  // saving.cc

// making.cc: whether a full vector is no longer than frames of so many entries, up and down; and the codec it travels
// in.
bool is_dense_shorter(const WorkerConfig& config, double entries, std::uint64_t dim, int ranks);
std::string dense_codec(const WorkerConfig& config);

struct Worker::Parts {
  Parts(const WorkerConfig& config, Layout layout, Transport& transport);

  WorkerConfig config;
  Layout layout;
  Transport& transport;
  std::vector<float> weights;  // of all ranks; they add up to 1
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Exchange> dense_exchange;  // where `auto` may choose in every step; else null
  bool goes_dense = false;                   // in the next step
  Sifter sifter;
  bool observes;            // only RegTop-k does, and it is not free
  bool server_votes_alone;  // one server's threshold needs no vote

  SparseVector sent;
  std::vector<float> received;  // its values, as the others got them; empty: the same
  SparseVector total;
  std::vector<float> at_sent;
  StepStats stats;

  // The exchange of this step.
  Exchange& way() noexcept;

  // The stations of a step.
  Word sift(const Gradient& gradient, const StepOptions& options);
  [[noreturn]] void take_back(const Gradient& gradient, const StepOptions& options, const Word& mine,
                              const Verdict::Failure& failure);
  void keep_rounding_loss();
  void observe();
  void agree();
  void scatter(std::span<float> update);
  void account(const Verdict& verdict);
  void compare_replicas();
  void check_size(std::span<const float> update) const;

  // saving.cc
  void share(const std::vector<SavedWorker>& saved);
};

}  // namespace sparsewire
