#include "sparsify/sparse_norm.h"

#include "kernels/norm.h"

namespace sparsewire {

void sum_sparse_norm(const Unit& unit, const std::uint32_t* indices, const float* values, std::size_t n,
                     std::uint32_t* positions, double* tiles) noexcept {
  if (unit.segments.size() == 1) {
    return kernels::sum_sparse_squares(indices, values, n, unit.segments[0].begin, tiles);
  }
  std::size_t i = 0;
  for (const Segment& segment : unit.segments) {
    const std::size_t shift = segment.begin - segment.position;
    for (; i < n && indices[i] < segment.begin + segment.size; ++i) {
      positions[i] = static_cast<std::uint32_t>(indices[i] - shift);
    }
  }
  kernels::sum_sparse_squares(positions, values, n, 0, tiles);
}

}  // namespace sparsewire
