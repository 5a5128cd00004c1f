// Entries that came out of the memory and may have to go back: what a pass finds, before the best are chosen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"

namespace sparsewire {

// How candidates are ranked: larger keys are better.
class Score {
 public:
  virtual ~Score() = default;
  // ENSURES: keys[i] <= the key of |values[i]|.
  virtual void rank(const std::uint32_t* indices, const float* values, std::size_t n,
                    std::uint32_t* keys) const noexcept = 0;
};

// By magnitude.
const Score& magnitude_score() noexcept;

class Candidates {
 public:
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return indices_.capacity(); }
  const std::uint32_t* indices() const noexcept { return indices_.data(); }
  const float* values() const noexcept { return values_.data(); }
  const std::uint32_t* keys() const noexcept { return keys_.data(); }

  void reserve(std::size_t capacity);
  void clear() noexcept { size_ = 0; }

  // Where a kernel may write the next entries, and how many it wrote. REQUIRES: capacity for them.
  std::uint32_t* next_index() noexcept { return indices_.data() + size_; }
  float* next_value() noexcept { return values_.data() + size_; }
  void added(std::size_t count) noexcept { size_ += count; }

  void append(const Candidates& others);
  // Joins two lists, both in the order of their indices.
  void merge(const Candidates& others);

  void rank(const Score& score) noexcept { score.rank(indices_.data(), values_.data(), size_, keys_.data()); }

  // Keeps the k with the largest keys, of equals the lower index; the others go back into the memory.
  // REQUIRES: rank() was called; k >= 1. Returns the k-th key, or 0 if there are fewer than k.
  std::uint32_t keep_best(std::size_t k, float* memory) noexcept;

  // All of them go back into the memory.
  void put_back(float* memory) noexcept;

 private:
  std::size_t size_ = 0;
  Buffer<std::uint32_t> indices_;
  Buffer<float> values_;
  Buffer<std::uint32_t> keys_;
  Buffer<std::uint32_t> lost_indices_;  // also the scratch of the selection
  Buffer<float> lost_values_;
};

}  // namespace sparsewire
