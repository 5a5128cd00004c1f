// Draws k of n positions at random without replacement: the choice of Random-k, which a receiver can repeat from the
// seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "sparsewire/pool.h"
#include "sparsewire/support/philox.h"

namespace sparsewire::kernels {

// The positions are the first k distinct numbers of the stream, each the high half of a 64-bit draw times n. For k >
// n/2, n - k positions are drawn in this way and left out. So all sets of k positions are equally likely. COST: O(k).
class Drawer {
 public:
  // The positions, ascending; valid until the next call. They do not depend on the pool, which may be null. REQUIRES: k
  // <= n < 2^32.
  const std::uint32_t* positions(const Stream& stream, std::size_t k, std::size_t n, Pool* pool = nullptr);

 private:
  void distinct(const Stream& stream, std::size_t k, std::size_t n, Pool* pool);
  std::size_t draw_sorted(const Stream& stream, std::size_t k, std::size_t n, Pool* pool);

  Buffer<std::uint32_t> drawn_;
  Buffer<std::uint32_t> scratch_;
  std::vector<std::size_t> counts_;  // of the draws of each thread in the range of each thread
};

}  // namespace sparsewire::kernels
