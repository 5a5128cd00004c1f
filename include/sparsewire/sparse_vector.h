// The entries of a vector that travel: the one value type every stage hands to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire {

// How indices were drawn, so that a receiver can draw them again (docs/wire_format.md): Random-k leaves it with its
// entries, and the codec then sends no index.
struct Draw {
  struct Unit {
    std::uint32_t size = 0;
    std::uint32_t k = 0;

    friend bool operator==(const Unit&, const Unit&) = default;
  };
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint8_t role = 0;
  std::vector<Unit> units;  // none: the indices were not drawn

  friend bool operator==(const Draw&, const Draw&) = default;
};

// Entries of a vector of `dim` numbers, indices strictly ascending.
//
// A *full* vector (what `dense` sends) has no indices: values[i] is the entry i. It is told apart by
// is_full(), so that the baseline carries no index it does not need.
struct SparseVector {
  std::uint64_t dim = 0;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  Draw draw;  // whoever changes the indices clears it

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
    draw.units.clear();
  }

  // The same entries, however they were chosen, and whether they are listed or full.
  friend bool operator==(const SparseVector& a, const SparseVector& b) noexcept {
    if (a.dim != b.dim || a.values != b.values) return false;
    if (a.is_full() == b.is_full()) return a.indices == b.indices;
    const std::vector<std::uint32_t>& listed = a.is_full() ? b.indices : a.indices;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (listed[i] != i) return false;
    }
    return true;
  }
};

}  // namespace sparsewire
