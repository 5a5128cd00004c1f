// What entries are chosen by, beyond their magnitudes: see kernels/second_choice.h.
#pragma once

#include "kernels/cuda/tile.cuh"
#include "kernels/second_choice.h"

namespace sparsewire::cuda {

enum class By { magnitude, draw, score, all };  // all: every candidate is sent

// RegTop-k's scores.
struct Scores {
  kernels::Regularisation regularisation = {};
  const kernels::LastRound* last_round = nullptr;
  std::uint32_t count = 0;  // of the last round

  // The key of an entry's score.
  __device__ std::uint32_t key_of(std::uint32_t index, float value) const {
    std::uint32_t low = 0;
    std::uint32_t high = count;
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (last_round[middle].index < index) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == count || last_round[low].index != index) return key(value);
    return key(__fmul_rn(regularisation.factor_at(last_round[low], value), value));
  }
};

}  // namespace sparsewire::cuda
