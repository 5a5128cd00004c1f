// The entries of a vector that travel: the one value type every stage hands to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire {

// Entries of a vector of `dim` numbers, indices strictly ascending.
//
// A *full* vector (what `dense` sends) has no indices: values[i] is the entry i. It is told apart by
// is_full(), so that the baseline carries no index it does not need.
struct SparseVector {
  std::uint64_t dim = 0;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  std::size_t size() const noexcept { return values.size(); }
  bool is_full() const noexcept { return indices.empty() && dim != 0 && values.size() == dim; }

  // The index of the entry `i`, for both forms.
  std::uint32_t index(std::size_t i) const noexcept { return is_full() ? static_cast<std::uint32_t>(i) : indices[i]; }

  // Full, or as many indices as values, ascending and below dim. COST: a look at every index.
  bool is_valid() const noexcept {
    if (is_full()) return true;
    const auto does_not_ascend = [](std::uint32_t a, std::uint32_t b) { return a >= b; };
    return indices.size() == values.size() && (indices.empty() || indices.back() < dim) &&
           std::adjacent_find(indices.begin(), indices.end(), does_not_ascend) == indices.end();
  }

  // Forgets the entries, keeps the storage.
  void clear(std::uint64_t new_dim) noexcept {
    dim = new_dim;
    indices.clear();
    values.clear();
  }

  friend bool operator==(const SparseVector&, const SparseVector&) = default;
};

}  // namespace sparsewire
