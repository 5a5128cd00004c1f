#include "merge/cuts.h"

#include <algorithm>

namespace sparsewire {

std::size_t entries_below(const SparseVector& vector, std::uint64_t index) noexcept {
  if (index >= vector.dim) return vector.size();
  if (vector.is_full()) return static_cast<std::size_t>(index);
  const auto at = std::lower_bound(vector.indices.begin(), vector.indices.end(), static_cast<std::uint32_t>(index));
  return static_cast<std::size_t>(at - vector.indices.begin());
}

// Guesses as if entries were evenly spread, which they often are; every other time takes the middle, so that the
// search ends soon where they are not.
std::uint64_t find_cut(std::uint64_t dim, std::span<const SparseVector> vectors, std::size_t wanted,
                       std::size_t tolerance) noexcept {
  const auto count_below = [&](std::uint64_t index) {
    std::size_t count = 0;
    for (const SparseVector& vector : vectors) count += entries_below(vector, index);
    return count;
  };
  std::uint64_t low = 0;
  std::uint64_t high = dim;
  std::size_t below_low = 0;
  std::size_t below_high = count_below(dim);
  for (bool is_guess = true; high - low > 1; is_guess = !is_guess) {
    std::uint64_t index = low + (high - low) / 2;
    if (is_guess && below_high > below_low) {
      const double share = static_cast<double>(wanted - below_low) / static_cast<double>(below_high - below_low);
      const auto offset = static_cast<std::uint64_t>(share * static_cast<double>(high - low));
      index = std::clamp(low + offset, low + 1, high - 1);
    }
    const std::size_t below = count_below(index);
    if (below <= wanted + tolerance && wanted <= below + tolerance) return index;
    if (below < wanted) {
      low = index;
      below_low = below;
    } else {
      high = index;
      below_high = below;
    }
  }
  return high;
}

}  // namespace sparsewire
