// The exact k best of a unit, in one pass over memory when all goes as usual.
//
// The k-th magnitude hardly moves from step to step. So guess a threshold a hair below the last one, take out all that
// lies above it, and choose among those: the guess buys speed and never decides. Where it fails, a sample of the unit
// gives a better one, and what is still missing is fetched from the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sparsify/sift_pass.h"

namespace sparsewire {

class State;

class TopSelector {
 public:
  TopSelector(const std::vector<Unit>& units, Pool* pool) : guesses_(units.size()), pass_(pool) {}

  SiftPass& pass() noexcept { return pass_; }

  // Accumulates the unit number `u` and moves its k best non-zero entries by `score` into `best`, indices ascending.
  // Returns the lowest index at which a sum is not finite; then the unit is as it was, to rounding.
  std::optional<std::size_t> take(std::size_t u, const Unit& unit, const Gradient& gradient, float* memory,
                                  std::size_t k, const Score& score, Candidates& best);

  // The k-th best key of the last take, or 0 if fewer were there.
  std::uint32_t kth() const noexcept { return kth_; }

 private:
  struct Guess {
    float threshold = 0;   // 0: none yet
    float margin = 0.01F;  // how far below the last k-th magnitude it lies
  };

  void learn(Guess& guess, std::size_t k, std::size_t found, bool sufficed) const noexcept;

  std::vector<Guess> guesses_;  // for each unit
  SiftPass pass_;
  std::uint32_t kth_ = 0;
};

}  // namespace sparsewire
