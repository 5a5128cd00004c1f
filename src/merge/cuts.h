// Where to cut sparse vectors, so that several threads can each sum a range of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// The number of entries of a vector whose index is below `index`.
std::size_t entries_below(const SparseVector& vector, std::uint64_t index) noexcept;

// An index below which the vectors have about `wanted` entries in all: at most `tolerance` more or fewer, where there
// is such an index. REQUIRES: valid vectors of dimension `dim`. COST: a few binary searches in each vector.
std::uint64_t find_cut(std::uint64_t dim, std::span<const SparseVector> vectors, std::size_t wanted,
                       std::size_t tolerance) noexcept;

}  // namespace sparsewire
