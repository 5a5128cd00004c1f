// Divides a model into units, each of which has its own k: the whole model, its tensors, or chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsewire/layout.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// Consecutive entries of a unit.
struct Segment {
  std::size_t begin = 0;  // in the model
  std::size_t size = 0;
  std::size_t position = 0;  // of its first entry in the unit
};

struct Unit {
  std::vector<Segment> segments;  // ascending; not adjacent
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

// All entries as one unit.
Unit whole_unit(std::size_t size);

}  // namespace sparsewire
