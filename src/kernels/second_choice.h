// What a sparsifier decides beyond magnitudes, in a form that processors and devices compute with the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sparsewire/support/philox.h"
#include "sparsewire/support/portable_math.h"

namespace sparsewire::kernels {

// An entry of the last round of RegTop-k: what was sent, and the update of all workers.
struct LastRound {
  std::uint32_t index;
  float sent;
  float update;
};

// RegTop-k's factors (regtopk.cc), at most 1: an entry's score is its magnitude times its factor.
struct Regularisation {
  double weight = 1;
  double mu = 1;
  bool form_b = false;

  constexpr float factor(double one_plus_delta) const noexcept {
    return static_cast<float>(portable_tanh((one_plus_delta < 0 ? -one_plus_delta : one_plus_delta) / mu));
  }
  constexpr float factor_at(const LastRound& last, float a) const noexcept {
    const double sent = weight * last.sent;
    return factor(1 + (last.update - sent) / (form_b ? weight * a : sent));
  }
};

// Which entries of a unit are sent, if the largest are not. One of the two:
struct SecondChoice {
  // Of the largest that the first choice gives, those with the smallest hashes: word 0 of the block with the number of
  // their index.
  std::optional<Stream> draw = {};
  // Those with the largest scores: magnitudes, times a factor at the entries of the last round, which ascend. Nearly
  // always they are among the largest by magnitude.
  const Regularisation* regularisation = nullptr;
  std::span<const LastRound> last_round = {};
};

}  // namespace sparsewire::kernels
