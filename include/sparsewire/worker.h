// One step of all workers: a gradient goes in, the update of all workers comes out, the same bits on every rank.
//
//   run_on_threads(8, [&](Transport& transport) {
//     Worker worker({.sparsifier = "topk:ratio=0.001", .exchange = "sharded", .downlink = "topk:ratio=0.001"},
//                   model.layout(), transport);
//     for (...) { worker.step(gradient, update); weights -= lr * update; }
//   });
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker_config.h"

namespace sparsewire {

struct StepOptions {
  float lr = 1;            // for feedback ef:scale=lr
  std::uint8_t flags = 0;  // all ranks get the flags of all ranks: for example "I was asked to stop"
  double loss = 0;         // of this rank's batch; all ranks get the mean
};

// What a step did and cost, on this rank.
struct StepStats {
  std::uint64_t step = 0;           // steps done, this one included
  std::uint64_t entries_sent = 0;   // by this rank
  std::uint64_t entries_total = 0;  // in the update
  double density = 0;               // entries_total / dim
  std::uint64_t dense_bytes = 0;    // of the gradient as f32
  std::uint64_t bytes_up = 0;       // of uplink frames to other ranks
  std::uint64_t bytes_down = 0;     // of downlink frames from other ranks
  std::uint64_t bytes_served = 0;   // of frames that this rank received and sent as a server
  double sent_norm2 = 0;            // ||sent||^2
  double memory_norm2 = 0;          // ||what was not sent||^2
  double total_error = 0;           // sum of memory_norm2 over all steps
  std::uint8_t flags = 0;           // those of all ranks, or-ed; also after a step that threw BadGradient
  double loss = 0;                  // the weighted mean over all ranks
  bool went_dense = false;          // all entries travelled, up and down, whatever the reason; the same on all ranks
  std::uint64_t ns_sift = 0;
  std::uint64_t ns_encode = 0;
  std::uint64_t ns_exchange = 0;  // the time spent waiting for other ranks included
  std::uint64_t ns_decode = 0;
  std::uint64_t ns_merge = 0;
  std::uint64_t ns_apply = 0;
};

// THREADS: one caller at a time.
class Worker {
 public:
  // Collective: all ranks construct theirs together. `transport` must outlive it. Throws UsageError, TransportError.
  Worker(const WorkerConfig& config, Layout layout, Transport& transport);
  ~Worker();
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;

  // One step of all workers together. `update` becomes the weighted sum of what they sent: then w -= lr * update, or
  // w -= update where the memory holds lr*gradient. `update` may be the gradient's own memory.
  //
  // Throws BadGradient, the same on every rank, if the gradient of one rank is not finite: memories are as before, to
  // rounding, `update` is as it was, the step does not count, and the next one can follow. The same holds after any
  // other error of one rank before its messages, such as a gradient of the wrong size: that rank throws it, and all
  // others throw RankFailed. Throws TransportError if a
  // rank is lost, if its message cannot be read, or if it is in another step or steps another worker; then this worker
  // must not be used again. Throws ReplicasDiffer, UsageError.
  const StepStats& step(Gradient gradient, std::span<float> update, const StepOptions& options = {});

  // The update of the last step as a sparse vector: the entries that some rank sent, or all if it is full. Valid until
  // the next step.
  const SparseVector& update() const noexcept;
  const StepStats& stats() const noexcept;

  // The error memory: what this worker has not sent yet.
  std::vector<float> memory() const;  // a copy
  // Adds what this rank, as a server, has not sent yet to `owed`, in units of the update. `owed` has an entry for each
  // of the model. Throws UsageError if the sizes differ.
  void add_server_memory(std::span<double> owed) const;

  // Everything that decides later steps. Not collective. Throws UsageError after a TransportError, whichever call it
  // came from: the step was not completed.
  std::vector<std::byte> save() const;
  // Continues from the states of all workers of an earlier run, given in rank order. Every rank needs all of them
  // (under MPI, Transport::all_gather can collect them), and all ranks must load the same. Not collective.
  //
  // With as many workers as before, and the same weights, exchange, downlink, seed, scope and codec, training continues
  // bit for bit. Otherwise what is owed to the weights stays the same: every new worker begins with the weighted sum of
  // the old memories, the new servers take over the memories of the old ones, and RegTop-k forgets its last round.
  //
  // Throws UsageError; then this worker is as it was.
  void load(std::span<const std::vector<std::byte>> states);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct ExchangeChoice {
  std::string_view name;
  std::string_view summary;  // what travels
  std::string_view example;  // for WorkerConfig::exchange
  bool takes_downlink;       // it has servers
};
// Every exchange there is.
std::vector<ExchangeChoice> exchange_choices();

}  // namespace sparsewire
