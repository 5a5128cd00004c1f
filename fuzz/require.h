// What the fuzz targets share: a condition that must hold, whatever the bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Ends the program, which is how libFuzzer learns of it.
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

inline bool same_bits(const SparseVector& a, const SparseVector& b) {
  return a.dim == b.dim && a.indices == b.indices && same_bits(std::span(a.values), std::span(b.values));
}

}  // namespace sparsewire
