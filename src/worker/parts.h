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

struct Worker::Parts {
  Parts(const WorkerConfig& config, Layout layout, Transport& transport);

  WorkerConfig config;
  Layout layout;
  Transport& transport;
  std::vector<float> weights;  // of all ranks; they add up to 1
  std::unique_ptr<Exchange> exchange;
  Sifter sifter;
  bool observes;            // only RegTop-k does, and it is not free
  bool server_votes_alone;  // one server's threshold needs no vote

  SparseVector sent;
  std::vector<float> received;  // its values, as the others got them; empty: the same
  SparseVector total;
  std::vector<float> at_sent;
  StepStats stats;

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
