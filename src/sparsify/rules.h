// What a method decides in a step, as data. Processors (unit_runner.cc) and devices (unit_sparsifier_device.cc) apply
// the same rules, so a method is written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/second_choice.h"
#include "kernels/sweep.h"
#include "sparsewire/support/philox.h"

namespace sparsewire {

// What is taken out of a unit, and sent.
struct Rule {
  enum class Kind : std::uint8_t {
    at_least,  // all entries whose key is at least n
    best,      // the n with the best scores, of entries that are not zero
    drawn,     // n drawn at random among all, also zeros
  };
  Kind kind = Kind::at_least;
  std::size_t n = kernels::kInfinityKey;
  std::size_t then_draw = 0;  // of the best only so many are sent, drawn at random; 0: all

  std::uint32_t key() const noexcept { return static_cast<std::uint32_t>(n); }
};

// What entries are ranked by: their magnitudes, or, with `by`, magnitudes times a factor. It is that of `by` at the
// entries of the last round, which ascend, and `elsewhere` at all others. No factor exceeds 1.
struct Scores {
  const kernels::Regularisation* by = nullptr;
  std::span<const kernels::LastRound> last_round = {};
  float elsewhere = 1;
};

// Where random draws of a step come from.
struct DrawsFrom {
  std::uint64_t seed = 0;
  std::uint32_t role = 0;
  std::uint32_t rank = 0;
  std::uint64_t step = 0;

  // Of Rule::then_draw: those with the smallest hashes of their indices.
  Stream among_best() const noexcept { return {seed, role, rank, step}; }
  // Of Rule::Kind::drawn.
  Stream in_unit(std::size_t u) const noexcept { return {unit_seed(seed, u), role, rank, step}; }
};

// Those of one step.
struct Rules {
  std::vector<Rule> of_units;
  Scores scores;
  DrawsFrom draws;
};

}  // namespace sparsewire
