// Entries that a pass has taken out of the error memory. The best of them are sent, and the others go back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"

namespace sparsewire {

// Ranks candidates: larger keys are better.
class Score {
 public:
  virtual ~Score() = default;
  // Sets keys[i] for candidate i. ENSURES, if TopSelector is to use it: keys[i] <= kernels::key_of(values[i]).
  virtual void rank(const std::uint32_t* indices, const float* values, std::size_t n,
                    std::uint32_t* keys) const noexcept = 0;
};

// Ranks by magnitude.
const Score& magnitude_score() noexcept;

// The candidates of one unit after another: what was chosen of one stays in front, where those of the next begin. All
// but the functions of chosen entries are about the candidates of the present unit.
class Candidates {
 public:
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return indices_.capacity() - chosen_; }
  const std::uint32_t* indices() const noexcept { return indices_.data() + chosen_; }
  const float* values() const noexcept { return values_.data() + chosen_; }
  const std::uint32_t* keys() const noexcept { return keys_.data(); }

  void reserve(std::size_t capacity);
  void clear() noexcept { size_ = 0; }

  // A kernel writes the next entries to next_index() and next_value(); then added() says how many. REQUIRES: capacity.
  std::uint32_t* next_index() noexcept { return indices_.data() + chosen_ + size_; }
  float* next_value() noexcept { return values_.data() + chosen_ + size_; }
  void added(std::size_t count) noexcept { size_ += count; }

  // Merges two lists that are sorted by index.
  void merge(const Candidates& others);

  void rank(const Score& score) noexcept { score.rank(indices(), values(), size_, keys_.data()); }

  // Keeps the k entries with the largest keys, among equals those with the lower index. The others become lost_count()
  // entries in lost_indices() and lost_values(). Returns the k-th key, or 0 if there are fewer than k entries.
  // REQUIRES: rank() was called; k >= 1.
  std::uint32_t keep_best(std::size_t k) noexcept;
  // The same if the k-th key is known: keeps the entries above it and the first `equals` that are equal to it.
  void keep_best(std::uint32_t kth, std::size_t equals) noexcept;
  std::size_t lost_count() const noexcept { return lost_; }
  const std::uint32_t* lost_indices() const noexcept { return lost_indices_.data(); }
  const float* lost_values() const noexcept { return lost_values_.data(); }

  // For the selection: an array for as many numbers as there are candidates, whose content is lost by keep_best().
  std::uint32_t* scratch() noexcept { return lost_indices_.data(); }

  // The candidates are chosen, and those of the next unit begin.
  void choose() noexcept {
    chosen_ += size_;
    size_ = 0;
  }
  std::size_t chosen_count() const noexcept { return chosen_; }
  const std::uint32_t* chosen_indices() const noexcept { return indices_.data(); }
  const float* chosen_values() const noexcept { return values_.data(); }
  void clear_all() noexcept { chosen_ = size_ = 0; }

 private:
  std::size_t chosen_ = 0;
  std::size_t size_ = 0;
  std::size_t lost_ = 0;
  Buffer<std::uint32_t> indices_;
  Buffer<float> values_;
  Buffer<std::uint32_t> keys_;
  Buffer<std::uint32_t> lost_indices_;  // also used as scratch by the selection
  Buffer<float> lost_values_;
};

}  // namespace sparsewire
