#include "sparsify/units.h"

#include <algorithm>

namespace sparsewire {
namespace {

void extend(Unit& unit, std::size_t begin, std::size_t size) {
  if (size == 0) return;
  Segment* const last = unit.segments.empty() ? nullptr : &unit.segments.back();
  if (last != nullptr && last->begin + last->size == begin) {
    last->size += size;
  } else {
    unit.segments.push_back({begin, size, unit.size});
  }
  unit.size += size;
}

struct Stretch {
  std::size_t begin;
  std::size_t size;
};

// The ranges of entries that are not in small tensors. With Scope::model adjacent tensors are joined, so that a model
// without small tensors is one stretch.
std::vector<Stretch> stretches(const Layout& layout, const Cut& cut) {
  std::vector<Stretch> found;
  for (const TensorRange& tensor : layout.tensors()) {
    if (tensor.size == 0 || tensor.size < cut.dense_below) continue;
    const bool joins =
        cut.scope == Scope::model && !found.empty() && found.back().begin + found.back().size == tensor.begin;
    if (joins) {
      found.back().size += tensor.size;
    } else {
      found.push_back({tensor.begin, tensor.size});
    }
  }
  return found;
}

}  // namespace

std::vector<Unit> make_units(const Layout& layout, const Cut& cut) {
  std::vector<Unit> units;
  const std::size_t most = cut.chunk == 0 ? layout.dim() : cut.chunk;  // entries in a unit
  for (const Stretch& stretch : stretches(layout, cut)) {
    bool fresh = cut.scope == Scope::layer;  // each layer starts a new unit
    for (std::size_t done = 0; done < stretch.size; fresh = false) {
      if (units.empty() || fresh || units.back().size == most) units.emplace_back();
      const std::size_t size = std::min(most - units.back().size, stretch.size - done);
      extend(units.back(), stretch.begin + done, size);
      done += size;
    }
  }
  Unit small;
  small.dense = true;
  for (const TensorRange& tensor : layout.tensors()) {
    if (tensor.size < cut.dense_below) extend(small, tensor.begin, tensor.size);
  }
  if (small.size != 0) units.push_back(std::move(small));
  return units;
}

Unit whole_unit(std::size_t size) {
  Unit unit;
  extend(unit, 0, size);
  return unit;
}

std::size_t segment_at(const Unit& unit, std::size_t position) noexcept {
  const auto after = std::partition_point(unit.segments.begin(), unit.segments.end(),
                                          [&](const Segment& s) { return s.position + s.size <= position; });
  return static_cast<std::size_t>(after - unit.segments.begin());
}

}  // namespace sparsewire
