// Selects the k best of lists of candidates: exact, in linear time; among equals the first wins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sparsewire/pool.h"

namespace sparsewire::kernels {

struct Kth {
  std::uint32_t key = 0;  // the k-th largest key
  std::size_t above = 0;  // how many keys are larger
};

inline constexpr int kDigitBits = 11;  // 2048 counters of 4 bytes stay in the L1 cache

// One of the lists that are searched together, and what the search finds out about it.
struct alignas(128) KeyList {
  const std::uint32_t* keys = nullptr;
  std::size_t n = 0;
  std::uint32_t* scratch = nullptr;  // room for n keys; may be the same array, which is then overwritten

  std::size_t above = 0;  // keys above the k-th
  std::size_t equal = 0;  // keys that are equal to it

  // While the search goes on: the keys that may still be the k-th, their range, and how many have each next digit.
  const std::uint32_t* left = nullptr;
  std::size_t left_count = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::array<std::uint32_t, std::size_t{1} << kDigitBits> counts;
};

// The k-th largest key of all lists together. REQUIRES: 1 <= k <= the number of keys; with a pool, as many lists as it
// has threads. COST: about two passes over the keys, independent of their values.
Kth kth_largest(std::span<KeyList> lists, std::size_t k, Pool* pool) noexcept;

// The same for one list.
Kth kth_largest(const std::uint32_t* keys, std::size_t n, std::size_t k, std::uint32_t* scratch) noexcept;

// Splits candidates, which are sorted by index. Those with a key above `key`, and the first `equals` with exactly that
// key, are moved to the front in their order; the others are copied to `lost_indices` and `lost_values`. The keys are
// not moved. Returns how many candidates stayed. REQUIRES: room for n entries in each of the two lost arrays.
std::size_t split(std::uint32_t key, std::size_t equals, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) noexcept;

}  // namespace sparsewire::kernels
