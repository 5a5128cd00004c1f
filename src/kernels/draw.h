// Draws k of n positions at random without replacement: the choice of Random-k, which a receiver can repeat from the
// seed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/philox.h"

namespace sparsewire::kernels {

// The positions are the first k distinct numbers of the stream, each the high half of a 64-bit draw times n. For k >
// n/2, n - k positions are drawn in this way and left out. So all sets of k positions are equally likely. COST: O(k).
class Drawer {
 public:
  // The positions, ascending; valid until the next call. REQUIRES: k <= n < 2^32.
  const std::uint32_t* positions(const Stream& stream, std::size_t k, std::size_t n);

 private:
  void distinct(const Stream& stream, std::size_t k, std::size_t n);

  Buffer<std::uint32_t> drawn_;
  Buffer<std::uint32_t> scratch_;
};

}  // namespace sparsewire::kernels
