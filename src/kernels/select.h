// Selects the k best of a list of candidates: exact, in linear time; among equals the first wins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsewire::kernels {

struct Kth {
  std::uint32_t key = 0;  // the k-th largest key
  std::size_t above = 0;  // how many keys are larger
};

// REQUIRES: 1 <= k <= n; room for n keys in `scratch`.
// COST: about two passes over the keys, independent of their values.
Kth kth_largest(const std::uint32_t* keys, std::size_t n, std::size_t k, std::uint32_t* scratch) noexcept;

// Splits candidates, which are sorted by index. Those with a key above kth.key, and the first k - kth.above with
// exactly that key, are moved to the front in their order; the others are copied to `lost_indices` and `lost_values`.
// The keys are not moved. Returns how many candidates stayed, which is k. REQUIRES: room for n - k + 1 entries in each
// of the two lost arrays.
std::size_t split(Kth kth, std::size_t k, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) noexcept;

}  // namespace sparsewire::kernels
