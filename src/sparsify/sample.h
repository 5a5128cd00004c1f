// Estimates the k-th largest magnitude of a unit from a sample of its entries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sweep.h"
#include "sparsify/units.h"

namespace sparsewire {

// How many of n entries are sampled.
std::size_t sample_size(std::size_t n) noexcept;

// A threshold that probably a few more than k of the unit's entries at the positions [from, to) reach, with the
// gradient added; null: the memory has the sums. REQUIRES: room for sample_size(to - from) keys.
std::uint32_t sample_threshold(const Unit& unit, std::size_t from, std::size_t to,
                               const kernels::ScaledGradient* gradient, const float* memory, std::size_t k,
                               std::uint32_t* keys) noexcept;

}  // namespace sparsewire
