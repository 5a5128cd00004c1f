// k of n positions at random, without replacement: Random-k's choice, and what a receiver draws again from the seed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/philox.h"

namespace sparsewire::kernels {

// The first k distinct numbers of the stream, each the high half of a 64-bit draw times n; for k > n/2 the first n - k
// are those left out. So every set is as likely as any other, and the cost is O(k).
class Drawer {
 public:
  // The positions, ascending; they stay until the next call. REQUIRES: k <= n < 2^32.
  const std::uint32_t* positions(const Stream& stream, std::size_t k, std::size_t n);

 private:
  void distinct(const Stream& stream, std::size_t k, std::size_t n);

  Buffer<std::uint32_t> drawn_;
  Buffer<std::uint32_t> scratch_;
};

}  // namespace sparsewire::kernels
