// Divides a model into units, each of which has its own k: the whole model, its tensors, or chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsewire/layout.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// Consecutive entries. Threads share the work block by block, and norms are summed block by block.
struct Block {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// The largest size of a block: small enough to divide 25M entries among many threads, large enough that the data kept
// for each block takes no space worth counting.
inline constexpr std::size_t kBlock = 65536;

struct Unit {
  std::vector<Block> blocks;  // ascending; not always adjacent
  std::size_t size = 0;
  bool dense = false;  // small tensors: every non-zero entry is sent
};

// How to divide a model.
struct Cut {
  Scope scope = Scope::model;
  std::uint64_t chunk = 0;        // the largest size of a unit; 0: no limit
  std::uint64_t dense_below = 0;  // tensors smaller than this are sent densely
};

// The sparse units in ascending order and, if there are small tensors, one dense unit of all of them at the end.
std::vector<Unit> make_units(const Layout& layout, const Cut& cut);

}  // namespace sparsewire
