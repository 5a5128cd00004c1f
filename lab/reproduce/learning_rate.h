// Learning rates of the experiments.
#pragma once

#include <cstdint>

#include "sparsewire/support/portable_math.h"

namespace sparsewire::reproduce {

enum class Rate : std::uint8_t {
  constant,
  cosine,  // falls along half a cosine: lr in the first round, almost 0 in the last
};

// The learning rate of round `step`, counted from 0.
inline double rate_at(Rate rate, double lr, std::uint64_t step, std::uint64_t rounds) {
  if (rate == Rate::constant) return lr;
  const double done = static_cast<double>(step) / static_cast<double>(rounds);
  return lr * (1 + portable_cos_of_turns(done / 2)) / 2;
}

}  // namespace sparsewire::reproduce
