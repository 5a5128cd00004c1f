// Divides a model into units, each of which has its own k: the whole model, its tensors, or chunks.
#pragma once

#include <algorithm>
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

// The number of the segment that has the entry at `position` of the unit.
std::size_t segment_at(const Unit& unit, std::size_t position) noexcept;

// Calls range(first, n) for the consecutive entries at the positions [from, to) of the unit, at most `most` at a time,
// until it returns false.
template <class Range>
void for_each_range(const Unit& unit, std::size_t from, std::size_t to, std::size_t most, Range range) {
  for (std::size_t s = segment_at(unit, from); from < to; ++s) {
    const Segment& segment = unit.segments[s];
    const std::size_t end = std::min(to, segment.position + segment.size);
    while (from < end) {
      const std::size_t n = std::min(most, end - from);
      if (!range(segment.begin + (from - segment.position), n)) return;
      from += n;
    }
  }
}

}  // namespace sparsewire
