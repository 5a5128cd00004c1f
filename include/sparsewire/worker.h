// One step of all workers: a gradient goes in, the update of all workers comes out, the same bits on every rank.
//
//   run_on_threads(8, [&](Transport& transport) {
//     Worker worker({.sparsifier = "topk:ratio=0.001", .exchange = "sharded", .downlink = "topk:ratio=0.001"},
//                   model.layout(), transport);
//     for (...) { worker.step(gradient); worker.apply_update(weights, lr); }
//   });
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  float lr = 1;            // for feedback ef:scale=lr; the same on all ranks
  float unscale = 1;       // the gradient is multiplied by it, in the same pass: for a loss that was scaled up
  std::uint8_t flags = 0;  // all ranks get the flags of all ranks: for example "I was asked to stop"
  double loss = 0;         // of this rank's batch; all ranks get the mean
  // The update is used where the gradient is, by write_update() and apply_update(). If it is there, and a full vector
  // (exchange `dense` of threads that share a device), it stays: what step() and update() return has no entries then.
  bool update_on_device = false;
  // Of this rank in this step, instead of WorkerConfig::weight: for batches of different sizes. Average::senders only,
  // not with exchange `dense` or `auto`, nor with a sparsifier that observes (RegTop-k).
  std::optional<double> weight = {};
};

// What a step did and cost, on this rank.
//
// The total error of a training is sum_i w_i total_error_i + sum_i server_error_i, over all ranks, with w_i their
// weights (Worker::weight). All memories have the unit of the update, and what is owed to the weights is o = sum_i w_i
// e_i + E: so the sum over all steps of ||o||^2 is at most twice the total error. With Average::senders that does not
// hold: each worker's memory and what it sent add up to its own gradients, and a server's memory to its means.
struct StepStats {
  std::uint64_t step = 0;           // steps done, this one included
  std::uint64_t entries_sent = 0;   // by this rank
  std::uint64_t entries_total = 0;  // in the update
  double density = 0;               // entries_total / dim
  std::uint64_t dense_bytes = 0;    // of the gradient as f32
  std::uint64_t bytes_up = 0;       // of uplink frames to other ranks
  std::uint64_t bytes_down = 0;     // of downlink frames from other ranks
  std::uint64_t bytes_served = 0;   // of frames that this rank received and sent as a server
  double sent_norm2 = 0;            // ||sent||^2, before the codec rounds
  double memory_norm2 = 0;          // ||what this worker owes||^2: what it did not send, and what its codec rounded off
  double server_memory_norm2 = 0;   // the same of this rank's server; 0 if it has none, or if the step was dense
  double total_error = 0;           // sum of memory_norm2 over all steps
  double server_error = 0;          // sum of server_memory_norm2 over all steps
  std::uint8_t flags = 0;           // those of all ranks, or-ed; also after a step that threw BadGradient
  double loss = 0;                  // the weighted mean over all ranks
  bool went_dense = false;          // all entries travelled, up and down, whatever the reason; the same on all ranks
  std::uint64_t ns_sift = 0;
  std::uint64_t ns_encode = 0;    // with `server` and `sharded`, that of the answer included
  std::uint64_t ns_exchange = 0;  // the time spent waiting for other ranks included
  std::uint64_t ns_decode = 0;
  std::uint64_t ns_merge = 0;
  std::uint64_t ns_apply = 0;
  // Of the step trailers behind the frames, which bytes_up, bytes_down and bytes_served leave out.
  std::uint64_t trailer_bytes_up = 0;
  std::uint64_t trailer_bytes_down = 0;
  std::uint64_t trailer_bytes_served = 0;
};

// How well the last update stands for all that was owed: a = sum_i w_i a_i + E, where a_i is what worker i had before
// it sent (memory and gradient), and E what the servers had. All in units of the update.
struct CompressionError {
  double xi = 0;     // ||Top_k(a) - update|| / ||sum_i w_i g_i||, g_i in the unit of the memory (Alistarh et al., 2018)
  double gamma = 0;  // ||a - Top_k(a)|| / ||a||
  double owed_norm2 = 0;  // ||sum_i w_i e_i + E||^2: what is owed after the step
  std::uint64_t k = 0;    // entries of the update with a downlink; without, those that a worker sent on average
};

// THREADS: one caller at a time.
class Worker {
 public:
  // Collective: all ranks construct theirs together. `transport` must outlive it. Throws UsageError, TransportError.
  Worker(const WorkerConfig& config, Layout layout, Transport& transport);
  ~Worker();
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;

  // One step of all workers together: begin_step() and finish_step(). Returns the update: the weighted sum of what all
  // workers sent, or its mean over the senders (Average), at the entries that some of them sent, or full. Valid until
  // the next step. To use it: w -= lr * update, or w -= update where the memory holds lr*gradient (apply_update).
  //
  // Throws BadGradient, the same on every rank, if the gradient of one rank is not finite: memories are as before, to
  // rounding, the step does not count, and the next one can follow. If another error happens on one rank before its
  // messages, for example a gradient of the wrong size, that rank throws it and all others throw RankFailed; the next
  // step can follow. Throws TransportError if a rank is lost, if its message cannot be read, or if it is in another
  // step or steps another worker; then this worker must not be used again. Throws ReplicasDiffer.
  const SparseVector& step(const Gradient& gradient, const StepOptions& options = {});

  // The first half of a step, without messages: adds the gradient to the memory and chooses the entries to send. The
  // gradient must stay as it is until the step is finished, or for as long as it may be taken back. An error with the
  // gradient is thrown by finish_step(), because the other ranks have to be told. Throws UsageError if a step has begun
  // already.
  void begin_step(const Gradient& gradient, const StepOptions& options = {});
  // The second half: all messages. May be called by another thread than begin_step(). Throws as step() does, and
  // UsageError if no step has begun.
  const SparseVector& finish_step();
  // Takes the last finished step back, as if it had not been: memory and velocity (to rounding, as BadGradient says),
  // the memory of the server (exactly), what sparsifiers have learnt, the number of the step. No messages: all ranks
  // must call it, or none. For a trainer that skips a step after some of its workers have done theirs. REQUIRES: the
  // gradient has not changed. Throws UsageError if there is no such step, or something came after it.
  void take_back_step();

  // Measures the last finished step, for studies. Collective: two dense all-reduces, three with downlink_feedback none.
  // REQUIRES: the gradient has not changed. Throws UsageError if there is no such step or something came after it, or
  // unless the feedback is `ef` and the average is over all.
  CompressionError measure_compression();

  // Writes factor * update as a dense array: zero where there is no entry. It may be the gradient's own memory.
  void write_update(WritableNumbers numbers, float factor = 1) const;
  // weights -= lr * update, at the entries of the update. bf16 and f16 weights are rounded to nearest.
  void apply_update(WritableNumbers weights, float lr) const;
  // The update of the last step.
  const SparseVector& update() const noexcept;
  const StepStats& stats() const noexcept;
  const Layout& layout() const noexcept;
  // Of this worker in the update; those of all ranks add up to 1.
  float weight() const noexcept;

  // Sifter::threshold() of this worker, and of this rank's server.
  std::optional<double> threshold() const noexcept;
  std::optional<double> server_threshold() const noexcept;

  // The error memory: what this worker has not sent yet. A copy.
  std::vector<float> memory() const;
  // Copies one tensor's memory out, or new numbers in. Throws UsageError if no tensor has that name, a size differs, a
  // number is not finite, or a step has begun; then nothing has changed.
  void read_memory(std::string_view tensor, WritableNumbers numbers) const;
  void write_memory(std::string_view tensor, const Gradient& numbers);
  // Adds what this rank, as a server, has not sent yet to `owed`, in units of the update. `owed` has an entry for each
  // of the model. Throws UsageError if the sizes differ.
  void add_server_memory(std::span<double> owed) const;

  // Changes options between two steps: the keys of the sparsifiers, the decay of the feedback, the codecs, check_every,
  // the pool. Memories are kept, and what the sparsifiers have learnt where the new keys allow it: RegTop-k's last
  // round always; a threshold that was measured or follows a rule, or a calibration under way, if its keys stay the
  // same. With another ratio= or calibrate= it is measured again.
  //
  // Collective: all ranks must give the same, which is checked. Throws UsageError if something else differs (exchange,
  // average, scope, seed, weight, the kind or scale of the feedback, whether there is a downlink), or if ranks differ;
  // then nothing has changed. After any other error the transport has failed on all ranks; this worker can still be
  // saved where the call has thrown.
  void retune(const WorkerConfig& config);

  // Takes over what other workers of this rank have not sent yet, tensor by tensor: for a model whose tensors were
  // grouped anew. Every tensor of this worker must be in one of the others. What is owed to the weights stays the same:
  // a memory is multiplied by the weight it had and divided by the one it has now (not with Average::senders, which
  // divides by the weights itself); what a server owed goes to this
  // rank's new server where that serves the entry, and to the memory where not. What is taken over leaves the others. A
  // velocity is taken over likewise.
  //
  // What sparsifiers have learnt is taken over from those with the same name, and replaces what this worker's has
  // learnt. RegTop-k's last round is kept where the weights of all workers are the same. A measured threshold becomes
  // the mean of the old ones, weighted by the entries that are taken over; it is measured again if one of the others
  // has not finished that, or has another ratio= or calibrate=. rule=sqrt is applied again.
  // The thresholds of servers likewise, if all others have the same exchange and a downlink; else they are
  // measured again.
  //
  // No messages; all ranks must do the same. Throws UsageError, before anything has changed, if a tensor is missing or
  // has another size, the averages differ, or the feedbacks in kind or scale, the workers are not at the same step, or
  // if something is owed that this worker cannot hold: its weight is 0, its feedback is `none`, or a number is too
  // large.
  void adopt(std::span<Worker* const> others);

  // Everything that decides later steps. Not collective. Throws UsageError after a step that threw TransportError or
  // was not completed for another reason.
  std::vector<std::byte> save() const;
  // Continues from the states of all workers of an earlier run, given in rank order. Every rank needs all of them
  // (under MPI, Transport::all_gather can collect them), and all ranks must load the same. Not collective.
  //
  // With as many workers as before, and the same weights, exchange, downlink, seed, scope and codec, training continues
  // bit for bit. Otherwise what is owed to the weights stays the same: every new worker begins with the weighted sum of
  // the old memories, the new servers take over the memories of the old ones, and RegTop-k forgets its last round.
  //
  // If nothing of that has changed, the state of this rank alone is enough; then every rank must load its own.
  //
  // Throws UsageError; then this worker is as it was.
  void load(std::span<const std::vector<std::byte>> states);

 private:
  struct Parts;
  static std::unique_ptr<Parts> make_parts(const WorkerConfig& config, Layout layout, Transport& transport);
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
