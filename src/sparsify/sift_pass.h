// The pass over a unit, piece by piece and thread by thread: what lies at or above a threshold comes out of the memory.
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

  // Accumulates the unit and takes out every entry at or above `threshold`.
  // Returns the lowest index at which a sum is not finite; then the unit is as it was, to rounding.
  std::optional<std::size_t> take_all(const Unit& unit, const Gradient& gradient, float* memory,
                                      std::uint32_t threshold, Candidates& found);

  // The same, but holds on only to what can be among the k best by `score`: when many more come, the threshold rises.
  // `threshold` becomes what it rose to: every entry at or above it that is not in `found` is worse than k that are.
  std::optional<std::size_t> take_best(const Unit& unit, const Gradient& gradient, float* memory, std::size_t k,
                                       const Score& score, std::uint32_t& threshold, Candidates& found);

  // For when that was not enough: adds the entries that it left in the memory at or above `threshold` to those in
  // `found`, and keeps the k best. REQUIRES: `found` is ranked.
  void take_more(const Unit& unit, float* memory, std::size_t k, const Score& score, std::uint32_t threshold,
                 Candidates& found);

  // Accumulates the unit and takes out the entries at `positions` (ascending numbers of entries within the unit).
  std::optional<std::size_t> take_at(const Unit& unit, const Gradient& gradient, float* memory,
                                     std::span<const std::uint32_t> positions, Candidates& found);

  // Takes the gradient out of the unit again, to rounding.
  void subtract(const Unit& unit, const Gradient& gradient, float* memory);

  // A threshold that probably lets a little more than the k largest through, from a sample of the unit's sums (or, with
  // no gradient, of its memory).
  std::uint32_t sample(const Unit& unit, const Gradient* gradient, const float* memory, std::size_t k);

  // ||sums||^2 over the unit of the last take_all, take_best or take_at.
  double accumulated_norm2() const noexcept { return norm2_; }

 private:
  // What one thread does of a pass: some blocks of the unit, how far it got, and what it found.
  struct Part {
    std::size_t first_block = 0;
    std::size_t end_block = 0;
    std::size_t block = 0;   // where it stands
    std::size_t offset = 0;  // within that block
    std::array<double, kernels::kLanes> lanes{};
    std::uint32_t threshold = 0;
    std::uint32_t sure = 0;  // see take_best
    bool resampled = false;
    bool full = false;  // stopped for want of room
    std::size_t bad = kernels::kNoneBad;
    Candidates found;
    Buffer<std::uint32_t> sampled;
  };

  void divide(const Unit& unit, std::uint32_t threshold);
  template <class Work>
  void for_each_part(const Unit& unit, Work work);
  // Calls piece(first, n) for the entries from where the part stands, at most so many at a time, until it returns
  // false.
  template <class Piece>
  void walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept;
  template <class Take>
  void walk_limited(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k, const Score& score,
                    Part& part, Take take) noexcept;
  void tighten(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k, const Score& score,
               Part& part) noexcept;
  void reserve_limited(const Unit& unit, std::size_t k, Candidates& found);
  std::optional<std::size_t> finish(const Unit& unit, const Gradient& gradient, float* memory, Candidates& found);
  void take_back(const Unit& unit, const Gradient& gradient, float* memory);
  std::uint32_t sure() const noexcept;
  void collect(Candidates& found);

  Pool* pool_;
  std::vector<Part> parts_;  // one for each thread, in the order of the entries
  std::vector<double> block_norm2_;
  double norm2_ = 0;
};

}  // namespace sparsewire
