// Which samples are held back from training, for validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire::train {

struct HeldBack {
  std::vector<std::uint32_t> training;    // both ascend; together they are all samples
  std::vector<std::uint32_t> validation;  // empty if `share` is 0
};

// Draws max(1, floor(share*samples + 0.5)) samples, all choices being equally likely. Depends on nothing else, so it is
// the same on all ranks. Throws UsageError if none would be left for training. REQUIRES: samples < 2^32.
HeldBack hold_back(std::size_t samples, double share, std::uint64_t seed);

class Draws;
// The numbers 0 ... n-1 in an order that is drawn from `draws` (Fisher and Yates).
std::vector<std::uint32_t> shuffled(std::uint32_t n, Draws& draws);

}  // namespace sparsewire::train
