// Small messages beside those of the exchange: agreement when workers are constructed, votes, comparisons of replicas.
// They go over rank 0 only, so that the exchange `server` needs no link between two other ranks.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sparsewire/transport.h"

namespace sparsewire {

// Gathers a value of each rank at rank 0, which sends all of them to all ranks. It keeps its buffers, so that gathering
// again allocates nothing. THREADS: one caller at a time.
class ControlGather {
 public:
  explicit ControlGather(Transport& transport) : transport_(transport) {}

  // Collective: `values` becomes `mine` of all ranks, in rank order. Throws TransportError, on all ranks if it was
  // rank 0 that could not read a value.
  template <class T>
  void gather(const T& mine, std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> all = gather_bytes(std::as_bytes(std::span(&mine, 1)));
    values.resize(static_cast<std::size_t>(transport_.size()));
    std::memcpy(values.data(), all.data(), all.size());
  }

 private:
  // The bytes of all ranks, one after the other. REQUIRES: all ranks have equally many.
  std::span<const std::byte> gather_bytes(std::span<const std::byte> mine);

  Transport& transport_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> gathered_;  // on rank 0
  std::vector<std::byte> all_;
};

}  // namespace sparsewire
