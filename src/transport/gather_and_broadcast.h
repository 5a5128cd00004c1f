// Control traffic: small values of all ranks, for all ranks, over rank 0. So an exchange that is a star stays one.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace sparsewire {

// Collective: rank 0 gathers the bytes of all ranks and broadcasts them. Returns them, in rank order. Messages go
// between rank 0 and the others only. Throws TransportError.
std::vector<std::vector<std::byte>> gather_and_broadcast_bytes(Transport& transport, std::span<const std::byte> mine);

// The same for one value of each rank.
template <class T>
std::vector<T> gather_and_broadcast(Transport& transport, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto all = gather_and_broadcast_bytes(transport, std::as_bytes(std::span(&mine, 1)));
  std::vector<T> values(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() != sizeof(T)) {
      throw TransportError(fmt::format("rank {} made another call than the other ranks", r), static_cast<int>(r));
    }
    std::memcpy(&values[r], all[r].data(), sizeof(T));
  }
  return values;
}

}  // namespace sparsewire
