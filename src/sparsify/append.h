// The entries of one unit after another become one vector.
#pragma once

#include <algorithm>
#include <cstddef>

#include "sparsewire/sparse_vector.h"
#include "sparsify/candidates.h"

namespace sparsewire {

// Grows by half, so that the steady state allocates nothing.
inline void make_room(SparseVector& out, std::size_t more) {
  const std::size_t size = out.size() + more;
  if (size <= out.values.capacity() && size <= out.indices.capacity()) return;
  const std::size_t room = std::max(size, out.values.capacity() * 3 / 2);
  out.indices.reserve(room);
  out.values.reserve(room);
}

inline void append(SparseVector& out, const std::uint32_t* indices, const float* values, std::size_t count) {
  out.indices.insert(out.indices.end(), indices, indices + count);
  out.values.insert(out.values.end(), values, values + count);
}

// The last `count` entries of `out`, which are given again, come to their places among the `head` entries before them.
// O(entries) and in place: repeatedly moves the entry with the larger index of the two runs to the end.
inline void merge_tail(SparseVector& out, std::size_t head, const std::uint32_t* indices, const float* values,
                       std::size_t count) {
  for (std::size_t to = head + count; count > 0; --to) {
    const bool from_tail = head == 0 || out.indices[head - 1] < indices[count - 1];
    out.indices[to - 1] = from_tail ? indices[count - 1] : out.indices[head - 1];
    out.values[to - 1] = from_tail ? values[count - 1] : out.values[head - 1];
    from_tail ? --count : --head;
  }
}

// Appends those of a unit: at the end or, for the unit of small tensors, each in its place. REQUIRES: room.
inline void append(SparseVector& out, const Candidates& chosen, bool in_places) {
  const std::size_t head = out.size();
  append(out, chosen.indices(), chosen.values(), chosen.size());
  if (in_places) merge_tail(out, head, chosen.indices(), chosen.values(), chosen.size());
}

}  // namespace sparsewire
