// The sum of sparse vectors, entry by entry.
#pragma once

#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::reference {

// By a map, in the order of the vectors, each entry from +0 on; full if a vector is, or if it has all entries. No
// weights stand for ones.
SparseVector sum_of(std::uint64_t dim, const std::vector<SparseVector>& vectors, const std::vector<float>& weights);

// The same, each sum divided by the sum of the weights of the vectors that have the entry; 0 where that is 0.
SparseVector mean_of_senders(std::uint64_t dim, const std::vector<SparseVector>& vectors,
                             const std::vector<float>& weights);

}  // namespace sparsewire::reference
