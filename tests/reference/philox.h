// Philox4x32-10, written from the paper: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
#pragma once

#include <array>
#include <cstdint>

namespace sparsewire::reference {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

Counter philox(Counter counter, Key key);

// The random numbers of one step of one rank; `word0` is the number of an entry or a block.
struct Stream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t role = 0;

  Counter block(std::uint32_t word0) const;
};

}  // namespace sparsewire::reference
