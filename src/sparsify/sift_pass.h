// The pass over a unit, in pieces and on several threads: adds the gradient to the error memory and takes out the
// entries at or above a threshold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/sweep.h"
#include "sparsewire/gradient.h"
#include "sparsewire/pool.h"
#include "sparsify/candidates.h"
#include "sparsify/units.h"

namespace sparsewire {

// THREADS: one caller at a time; splits the work over the pool. Results do not depend on the number of threads.
class SiftPass {
 public:
  explicit SiftPass(Pool* pool);

  // Adds the gradient to the unit and takes out every entry at or above `threshold`.
  // Returns the lowest index at which a sum is not finite; then the unit is as it was, up to rounding.
  std::optional<std::size_t> take_all(const Unit& unit, const Gradient& gradient, float* memory,
                                      std::uint32_t threshold, Candidates& found);

  // The same, but keeps only entries that can be among the k best by `score`: when a list is full, it raises its
  // threshold, once to an estimate from a sample. `threshold` returns the highest threshold that was only estimated: an
  // entry at or above it that is not in `found` is worse than k entries that are.
  std::optional<std::size_t> take_best(const Unit& unit, const Gradient& gradient, float* memory, std::size_t k,
                                       const Score& score, std::uint32_t& threshold, Candidates& found);

  // If take_best() did not find enough: adds the entries that it left in the memory at or above a lower `threshold` to
  // those in `found`, and keeps the k best. REQUIRES: `found` is ranked.
  void take_more(const Unit& unit, float* memory, std::size_t k, const Score& score, std::uint32_t threshold,
                 Candidates& found);

  // Adds the gradient to the unit and takes out the entries at `positions` (ascending numbers of entries within the
  // unit).
  std::optional<std::size_t> take_at(const Unit& unit, const Gradient& gradient, float* memory,
                                     std::span<const std::uint32_t> positions, Candidates& found);

  // Subtracts the gradient from the unit again, up to rounding.
  void subtract(const Unit& unit, const Gradient& gradient, float* memory);

  // A threshold that probably a few more than k entries reach, estimated from a sample of the unit's sums (or, if
  // `gradient` is null, of its memory).
  std::uint32_t sample(const Unit& unit, const Gradient* gradient, const float* memory, std::size_t k);

  // ||sums||^2 over the unit of the last take_all(), take_best() or take_at().
  double accumulated_norm2() const noexcept { return norm2_; }

 private:
  // One thread's part of a pass: some blocks of the unit, how far it got, and what it found.
  struct Part {
    std::size_t first_block = 0;
    std::size_t end_block = 0;
    std::size_t block = 0;   // the current position
    std::size_t offset = 0;  // within that block
    std::array<double, kernels::kLanes> lanes{};
    std::uint32_t threshold = 0;
    std::uint32_t complete_from = 0;  // the highest estimated threshold; see take_best()
    bool resampled = false;           // the estimate from the entries to come was made
    bool full = false;                // stopped because the list is full
    std::size_t bad = kernels::kNoneBad;
    Candidates found;
    Buffer<std::uint32_t> sampled;
  };

  void divide(const Unit& unit, std::uint32_t threshold);
  template <class Work>
  void for_each_part(const Unit& unit, Work work);
  // Calls piece(first, n) for the entries from the part's current position on, at most `most` at a time, until it
  // returns false.
  template <class Piece>
  void walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept;
  template <class Take>
  void walk_limited(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k, const Score& score,
                    Part& part, Take take) noexcept;
  void raise_threshold(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k, const Score& score,
                       Part& part) noexcept;
  void reserve_limited(const Unit& unit, std::size_t k, Candidates& found);
  std::optional<std::size_t> finish(const Unit& unit, const Gradient& gradient, float* memory, Candidates& found);
  void take_back(const Unit& unit, const Gradient& gradient, float* memory);
  std::uint32_t complete_from() const noexcept;
  void collect(Candidates& found);

  Pool* pool_;
  std::vector<Part> parts_;  // one for each thread, in the order of the entries
  std::vector<double> block_norm2_;
  double norm2_ = 0;
};

}  // namespace sparsewire
