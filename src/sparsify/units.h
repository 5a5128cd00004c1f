// A model cut into the units that each have a k of their own: the whole, its tensors, or chunks of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsewire/layout.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// Consecutive entries; the grain of threads and of the norms' sums.
struct Block {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// Never more than this in a block: small enough to share 25M entries among many threads, large enough that what is kept
// for each block is nothing.
inline constexpr std::size_t kBlock = 65536;

struct Unit {
  std::vector<Block> blocks;  // ascending; not always adjacent
  std::size_t size = 0;
  bool dense = false;  // too small to sparsify: every non-zero entry goes
};

struct Cut {
  Scope scope = Scope::model;
  std::uint64_t chunk = 0;        // 0: not cut further
  std::uint64_t dense_below = 0;  // tensors smaller than this go dense
};

// The sparse units in ascending order and, if there are small tensors, one dense unit of all of them at the end.
std::vector<Unit> make_units(const Layout& layout, const Cut& cut);

}  // namespace sparsewire
