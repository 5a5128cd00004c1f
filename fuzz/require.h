// Checks of the fuzz targets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Aborts unless `holds`; libFuzzer reports the abort as a crash.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

// A full vector equals one that lists all its entries: `auto` sends the latter as a full one.
inline bool same_bits(const SparseVector& a, const SparseVector& b) {
  if (a.dim != b.dim || !same_bits(std::span(a.values), std::span(b.values))) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.index(i) != b.index(i)) return false;
  }
  return true;
}

}  // namespace sparsewire
