// Finds exactly the k best entries of a unit, normally in one pass over the error memory.
//
// The k-th magnitude hardly changes from step to step. So guess a threshold slightly below the last one, take out all
// entries above it, and choose the best k of those. The guess affects the speed, never the result: if it was too high,
// a sample of the unit gives a lower threshold, and a second pass takes the missing entries out of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sparsify/unit_pass.h"

namespace sparsewire {

class TopSelector {
 public:
  explicit TopSelector(std::size_t units) : guesses_(units) {}

  // Adds the gradient to unit number `u`, and takes its k best non-zero entries by `score` out: they are the candidates
  // of the pass. Returns the lowest index at which a sum is not finite; then every entry of the unit has made a round
  // trip. REQUIRES: scores do not exceed magnitudes (Score::rank). THREADS: can take from different units at the same
  // time.
  std::optional<std::size_t> take(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                  std::size_t k, const Score& score, UnitPass& pass);

  // The k-th best key of the last take() from unit `u`, or 0 if the unit had fewer non-zero entries.
  std::uint32_t kth(std::size_t u) const noexcept { return guesses_[u].kth; }

 private:
  struct Guess {
    float threshold = 0;   // 0: none yet
    float margin = 0.01F;  // how far it is at least below the last k-th magnitude, as a fraction of it
    float fall = 0;        // how far the k-th magnitude fell in a step, lately, as a fraction of it
    std::uint32_t kth = 0;
  };

  static void note_fall(Guess& guess, float before) noexcept;
  void adjust_margin(Guess& guess, std::size_t k, std::size_t found, bool sufficed) const noexcept;

  std::vector<Guess> guesses_;  // for each unit
};

}  // namespace sparsewire
