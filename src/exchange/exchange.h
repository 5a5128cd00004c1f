// Who talks to whom: dense, allgather, server, sharded. One file for each, one line in exchanges.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "exchange/step_trailer.h"
#include "sparsewire/codec.h"
#include "sparsewire/sifter.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/spec.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker_config.h"
#include "sparsify/device_sum.h"

namespace sparsewire {

// Everything that an exchange is made from.
struct ExchangePlan {
  WorkerConfig config;  // with a downlink_codec where there is a downlink; no downlink: the union is sent back
  std::uint64_t dim = 0;
  std::vector<float> weights;  // of all ranks, in rank order; they add up to 1
};

// The context of a sifter, a worker's or a server's, as far as the options decide it. The caller adds rank and role.
inline SifterContext make_context(const WorkerConfig& config, Layout layout) {
  SifterContext context{.layout = std::move(layout), .scope = config.scope};
  context.seed = config.seed;
  context.pool = config.pool;
  return context;
}

// What a step cost this rank.
struct Traffic {
  std::uint64_t bytes_up = 0;      // of uplink frames to other ranks
  std::uint64_t bytes_down = 0;    // of downlink frames from other ranks
  std::uint64_t bytes_served = 0;  // of frames that this rank received and sent as a server
  std::uint64_t trailers_up = 0;   // step trailers, counted likewise: each has kTrailerSize bytes
  std::uint64_t trailers_down = 0;
  std::uint64_t trailers_served = 0;
  std::uint64_t ns_encode = 0;  // with `server` and `sharded`, that of the answer included
  std::uint64_t ns_transport = 0;
  std::uint64_t ns_decode = 0;
  std::uint64_t ns_merge = 0;  // a downlink's sift included
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // One step. `sent` is what this rank sends, or empty if `trailer` says that it failed; `received` becomes its values
  // as the others decode them, or empty if nothing was rounded. `total` becomes the weighted sum or the mean of the
  // senders, through the downlink if there is one: the same bits on every rank.
  //
  // Every rank makes all calls of the transport that a step has, whatever it read: otherwise one damaged message would
  // leave the others waiting. If a rank had a bad gradient or an error, the outcome says so on all ranks, and nothing
  // else has happened. A rank that cannot read a message says so in its next message of the step, and all ranks fail;
  // after its last one, only this rank fails, and the caller has to tell the others (Transport::fail). Then the
  // exchange must not be used again. Throws TransportError.
  virtual StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                          SparseVector& total) = 0;

  // Sifts what the next run() sends. That may stay where the gradient is (Sifter::sift_all): then `sent` is empty.
  virtual void sift(Sifter& sifter, const Gradient& gradient, float lr, float unscale, SparseVector& sent) {
    sifter.sift(gradient, sent, lr, unscale);
  }

  // Takes the last step back, which was completed: the server's memory gets the bits that it had. REQUIRES: no other
  // step has begun.
  virtual void take_back() {}

  // Whether it moves all entries, also those that were not sent.
  virtual bool is_dense() const noexcept { return false; }

  // Where the sum of the last run() is, if it stayed on the device of the gradients; then `total` was left empty. Else
  // null. Valid until the next run().
  virtual DeviceSum* sum_on_device() noexcept { return nullptr; }

  // With Average::senders: the weighted sum of the last run() before it was divided, at the entries of `total`. Null if
  // this exchange does not keep it.
  virtual const std::vector<float>* undivided() const noexcept { return nullptr; }

  // This rank's downlink, with the server's memory; null if this rank serves nothing or there is no downlink.
  virtual Sifter* server() noexcept { return nullptr; }
  // Whether several ranks have a server(), so that they have to agree on measured thresholds.
  virtual bool has_many_servers() const noexcept { return false; }
  // The index in the model of the entry `local` of server()'s memory.
  virtual std::uint32_t served_index(std::uint32_t local) const noexcept { return local; }

  const Traffic& traffic() const noexcept { return traffic_; }
  // What this rank itself threw in the last run(), if its error is the failure of the step; else null.
  const std::exception_ptr& thrown() const noexcept { return thrown_; }

 protected:
  Traffic traffic_;
  std::exception_ptr thrown_;
};

// What `auto` uses an exchange for. One is for sparse steps, one for those in which a full vector is shorter.
enum class AutoUse : std::uint8_t { nothing, sparse_steps, full_steps };

struct ExchangeInfo {
  std::string_view name;
  bool takes_downlink;
  AutoUse auto_use;
  std::string_view summary;
};
std::span<const ExchangeInfo> exchanges() noexcept;

// The choice between two exchanges: the name `auto` is known here only.
struct AutoExchange {
  ExchangeInfo info;
  std::string_view sparse;  // the exchange for AutoUse::sparse_steps
  std::string_view full;    // and for AutoUse::full_steps
};
const AutoExchange& auto_exchange() noexcept;

// Throws UsageError; also if there is a downlink that the exchange does not take. `transport` must outlive it.
std::unique_ptr<Exchange> make_exchange(std::string_view spec, const ExchangePlan& plan, Transport& transport);

#define EXCHANGE(name, takes_downlink, auto_use, summary) \
  std::unique_ptr<Exchange> make_##name##_exchange(Spec& spec, const ExchangePlan& plan, Transport& transport);
#include "exchange/exchanges.def"
#undef EXCHANGE

}  // namespace sparsewire
