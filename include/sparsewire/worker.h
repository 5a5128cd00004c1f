// All of it in order: a gradient in, the update of all workers out, the same bits on every rank.
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
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/sparsifier.h"
#include "sparsewire/transport.h"

namespace sparsewire {

// The same on every rank, but for `weight` and `pool`.
struct WorkerConfig {
  std::string sparsifier = "topk:ratio=0.01";
  std::string feedback = "ef";
  std::string exchange = "sharded";  // dense, allgather, server, sharded, or auto
  std::string codec = "auto";
  std::string downlink = {};        // a sparsifier for the server's answer, with a memory of its own; empty: none
  std::string downlink_codec = {};  // empty: as `codec`
  Scope scope = Scope::model;
  double weight = 1;  // of this worker; all weights are divided by their sum
  std::uint64_t seed = 0;
  std::uint64_t check_every = 100;  // steps between two looks whether all replicas got the same update; 0: never
  Pool* pool = nullptr;
};

struct StepOptions {
  float lr = 1;            // for feedback ef:scale=lr
  std::uint8_t flags = 0;  // what this rank has to tell all others, such as "I was asked to stop"
  double loss = 0;         // of this rank's batch, if all are to learn of the mean
};

// What a step did and cost, on this rank.
struct StepStats {
  std::uint64_t step = 0;           // steps done, this one included
  std::uint64_t entries_sent = 0;   // by this rank
  std::uint64_t entries_total = 0;  // in the update
  double density = 0;               // entries_total / dim
  std::uint64_t dense_bytes = 0;    // of the gradient as f32
  std::uint64_t bytes_up = 0;       // uplink frames to others
  std::uint64_t bytes_down = 0;     // downlink frames from others
  std::uint64_t bytes_served = 0;   // as a server, in and out
  double sent_norm2 = 0;
  double memory_norm2 = 0;
  double total_error = 0;   // sum of memory_norm2 over all steps
  std::uint8_t flags = 0;   // of all ranks; also of a step that threw BadGradient
  double loss = 0;          // the weighted mean of all ranks'
  bool went_dense = false;  // all values travelled, by choice or because `auto` found that shorter
  std::uint64_t ns_sift = 0;
  std::uint64_t ns_encode = 0;
  std::uint64_t ns_exchange = 0;  // waiting included
  std::uint64_t ns_decode = 0;
  std::uint64_t ns_merge = 0;
  std::uint64_t ns_apply = 0;
};

// THREADS: one caller at a time.
class Worker {
 public:
  // Collective: all ranks make theirs together. `transport` must outlive it. Throws UsageError, TransportError.
  Worker(const WorkerConfig& config, Layout layout, Transport& transport);
  ~Worker();
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;

  // One step of all workers together. `update` becomes the weighted sum of what they sent: w -= lr * update, or
  // w -= update where the memory holds lr*gradient. It may be the gradient's own memory.
  //
  // Throws BadGradient on every rank, the same, if one gradient is not finite: memories are as before, to rounding,
  // `update` is as it was, the step does not count, and the next one works. Throws TransportError if a rank is lost, if
  // what it sent cannot be read, or if it is in another step or steps another worker; then this worker is of no more
  // use. Throws ReplicasDiffer, UsageError.
  const StepStats& step(Gradient gradient, std::span<float> update, const StepOptions& options = {});

  // The same update, only the entries that somebody sent (all, if it is full); stays until the next step.
  const SparseVector& update() const noexcept;
  const StepStats& stats() const noexcept;

  // What this worker has not sent yet.
  std::span<const float> memory() const noexcept;
  // What this rank, as a server, has not sent yet, added to `owed`, which has an entry for each of the model. In units
  // of the update. Throws UsageError if the sizes differ.
  void add_server_memory(std::span<double> owed) const;

  // Everything that decides later steps. Not collective. Throws UsageError after a TransportError, which leaves a step
  // half done.
  std::vector<std::byte> save() const;
  // Goes on where the workers left off that saved these states, given in rank order and whole to every rank, and loaded
  // by all (under MPI, save() of each may be collected by Transport::all_gather). Bit for bit with as many as before
  // and the same seed, scope and codec; with another number, or other weights, exchange or downlink, what is owed to
  // the weights stays the same: every new worker begins with the weighted sum of the old memories, the servers'
  // memories are dealt anew, RegTop-k's last round is dropped. Throws UsageError; then this worker is as it was. Not
  // collective.
  void load(std::span<const std::vector<std::byte>> states);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct ExchangeChoice {
  std::string_view name;
  std::string_view summary;  // what travels
  std::string_view example;  // for WorkerConfig::exchange
};
// Every exchange there is.
std::vector<ExchangeChoice> exchange_choices();

}  // namespace sparsewire
