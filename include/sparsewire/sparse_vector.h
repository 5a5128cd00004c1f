// The entries of a vector that are sent: the type that every stage of a step passes to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire {

// How indices were drawn at random, so that a receiver can draw the same ones (docs/reference/wire_format.md). Random-k
// sets it together with its entries, and the codec then needs to send no index.
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
  std::vector<Unit> units;  // empty: the indices were not drawn

  friend bool operator==(const Draw&, const Draw&) = default;
};

// Entries of a vector of `dim` numbers, indices strictly ascending.
//
// A *full* vector (what `dense` sends) has no indices: values[i] is the entry i. So the dense baseline does not pay for
// indices that it does not need. is_full() tells the two forms apart.
struct SparseVector {
  std::uint64_t dim = 0;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  Draw draw;  // code that changes the indices must clear it

  std::size_t size() const noexcept { return values.size(); }
  bool is_full() const noexcept { return indices.empty() && dim != 0 && values.size() == dim; }

  // The index of entry number `i`, for both forms.
  std::uint32_t index(std::size_t i) const noexcept { return is_full() ? static_cast<std::uint32_t>(i) : indices[i]; }

  // Either full, or as many indices as values, strictly ascending and below dim. COST: reads every index.
  bool is_valid() const noexcept {
    if (is_full()) return true;
    const auto does_not_ascend = [](std::uint32_t a, std::uint32_t b) { return a >= b; };
    return indices.size() == values.size() && (indices.empty() || indices.back() < dim) &&
           std::adjacent_find(indices.begin(), indices.end(), does_not_ascend) == indices.end();
  }

  // Removes the entries, keeps the storage.
  void clear(std::uint64_t new_dim) noexcept {
    dim = new_dim;
    indices.clear();
    values.clear();
    draw.units.clear();
  }

  // Compares dim and entries. A full vector equals one that lists all its entries; `draw` is not compared.
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
