// The squares of chosen entries of a unit, in the order of kernels/norm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsify/units.h"

namespace sparsewire {

// Sets tiles[t] to the sum of squares of the entries in tile t of the unit, for the tiles that have entries. The
// indices ascend. `positions` has room for n numbers.
void sum_sparse_norm(const Unit& unit, const std::uint32_t* indices, const float* values, std::size_t n,
                     std::uint32_t* positions, double* tiles) noexcept;

}  // namespace sparsewire
