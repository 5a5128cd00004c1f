// Room for more than is needed now: the numbers of entries and bytes change a little in every step, and a steady state
// allocates nothing.
#pragma once

#include <cstddef>
#include <vector>

namespace sparsewire {

inline std::size_t with_room(std::size_t size) noexcept { return size + size / 4 + 64; }

// Resizes, with room for more where it has to allocate.
template <class T>
void resize_with_room(std::vector<T>& items, std::size_t size) {
  if (size > items.capacity()) items.reserve(with_room(size));
  items.resize(size);
}

}  // namespace sparsewire
