// Gathers one small value from each rank.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace sparsewire {

// Collective. Returns the values of all ranks, in rank order. Throws TransportError.
template <class T>
std::vector<T> all_gather_values(Transport& transport, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<std::byte>> all;
  transport.all_gather(std::as_bytes(std::span(&mine, 1)), all);
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
