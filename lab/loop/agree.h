// What ranks tell each other beside the steps: errors, checksums, totals. It goes over rank 0 only, so that the
// exchange `server` needs no link between two other ranks.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sparsewire/transport.h"

namespace sparsewire::train {

// Collective: the bytes of all ranks, in rank order. Throws TransportError, also where a checksum does not match.
std::vector<std::vector<std::byte>> tell_all(Transport& transport, std::span<const std::byte> mine);

[[noreturn]] void throw_other_call(std::size_t rank);

// The same for one value of each rank.
template <class T>
std::vector<T> values_of_all(Transport& transport, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto all = tell_all(transport, std::as_bytes(std::span(&mine, 1)));
  std::vector<T> values(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].size() != sizeof(T)) throw_other_call(r);
    std::memcpy(&values[r], all[r].data(), sizeof(T));
  }
  return values;
}

}  // namespace sparsewire::train
