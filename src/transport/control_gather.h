// Control traffic beside the exchange: agreement when workers are constructed, votes, comparisons of replicas. It
// goes over rank 0 only, so that the exchange `server` needs no link between two other ranks.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sparsewire/transport.h"

namespace sparsewire {

// Gathers the bytes of each rank at rank 0, which sends all of them to all ranks. It keeps its buffers, so that
// gathering again allocates nothing. THREADS: one caller at a time.
class ControlGather {
 public:
  explicit ControlGather(Transport& transport) : transport_(transport) {}

  // Collective: the bytes of all ranks, in rank order; valid until the next call. Throws TransportError, on all ranks
  // if it was rank 0 that could not read the bytes of one.
  std::span<const std::span<const std::byte>> gather_bytes(std::span<const std::byte> mine);

  // The same for one value of each rank.
  template <class T>
  void gather(const T& mine, std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto all = gather_bytes(std::as_bytes(std::span(&mine, 1)));
    values.resize(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].size() != sizeof(T)) throw_other_call(r);
      std::memcpy(&values[r], all[r].data(), sizeof(T));
    }
  }

 private:
  [[noreturn]] static void throw_other_call(std::size_t rank);

  Transport& transport_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> gathered_;  // on rank 0
  std::vector<std::byte> all_;
  std::vector<std::span<const std::byte>> parts_;  // of all_
};

}  // namespace sparsewire
