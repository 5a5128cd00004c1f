// SparseVector::is_valid() on the threads of a pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "core/slices.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

inline bool is_valid(const SparseVector& vector, Pool* pool) {
  if (vector.is_full()) return true;
  const std::vector<std::uint32_t>& indices = vector.indices;
  if (indices.size() != vector.values.size() || (!indices.empty() && indices.back() >= vector.dim)) return false;
  std::atomic<bool> ascend = true;
  for_each_slice(pool, indices.size(), 8192, [&](std::size_t begin, std::size_t end, int) {
    bool all = true;
    for (std::size_t i = std::max<std::size_t>(begin, 1); i < end; ++i) all &= indices[i - 1] < indices[i];
    if (!all) ascend = false;
  });
  return ascend;
}

}  // namespace sparsewire
