// Who talks to whom: dense, allgather, server, sharded. One file for each, one line in exchanges.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/spec.h"
#include "exchange/step_trailer.h"
#include "sparsewire/codec.h"
#include "sparsewire/sifter.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/transport.h"

namespace sparsewire {

// Everything that an exchange is made from.
struct ExchangePlan {
  std::uint64_t dim = 0;
  std::vector<float> weights;  // of all ranks, in rank order; they add up to 1
  std::string codec = "auto";
  std::string downlink;        // empty: the union is sent
  std::string downlink_codec;  // with a downlink
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;
  Pool* pool = nullptr;
};

// What a round cost this rank.
struct Traffic {
  std::uint64_t bytes_up = 0;      // uplink frames to others
  std::uint64_t bytes_down = 0;    // downlink frames from others
  std::uint64_t bytes_served = 0;  // as a server: what came in from others, and went out to them
  std::uint64_t ns_encode = 0;
  std::uint64_t ns_transport = 0;
  std::uint64_t ns_decode = 0;
  std::uint64_t ns_merge = 0;  // a downlink's sift included
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // One step. `sent` is what this rank sends, or empty if `trailer` says that it failed; `received` becomes its values
  // as the others decode them, or empty if nothing was rounded. `total` becomes the weighted sum, through the downlink
  // if there is one: the same bits on every rank. If any rank had a bad gradient, the outcome says so on all of them
  // and nothing else has happened; after any other failure the exchange must not be used again. Throws TransportError.
  virtual StepOutcome run(const SparseVector& sent, const StepTrailer& trailer, std::vector<float>& received,
                          SparseVector& total) = 0;

  // What this rank's server has not sent yet; null if it has no memory.
  virtual Sifter* server() noexcept { return nullptr; }
  // The index in the whole model of the entry `local` of server()'s memory.
  virtual std::uint32_t served_index(std::uint32_t local) const noexcept { return local; }

  const Traffic& traffic() const noexcept { return traffic_; }

 protected:
  Traffic traffic_;
};

struct ExchangeInfo {
  std::string_view name;
  std::string_view summary;
};
std::span<const ExchangeInfo> exchanges() noexcept;

// Throws UsageError. `transport` must outlive it.
std::unique_ptr<Exchange> make_exchange(std::string_view spec, const ExchangePlan& plan, Transport& transport);

#define EXCHANGE(name, summary) \
  std::unique_ptr<Exchange> make_##name##_exchange(Spec& spec, const ExchangePlan& plan, Transport& transport);
#include "exchange/exchanges.def"
#undef EXCHANGE

}  // namespace sparsewire
