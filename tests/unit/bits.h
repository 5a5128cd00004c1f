// Compares floats by their bits; failures say where they differ.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

inline ::testing::AssertionResult same_bits(std::span<const float> expected, std::span<const float> actual) {
  if (expected.size() != actual.size()) {
    return ::testing::AssertionFailure() << actual.size() << " numbers instead of " << expected.size();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (bits_of(expected[i]) != bits_of(actual[i])) {
      return ::testing::AssertionFailure()
             << std::hexfloat << "at " << i << ": " << actual[i] << " instead of " << expected[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bits(double expected, double actual) {
  if (std::bit_cast<std::uint64_t>(expected) == std::bit_cast<std::uint64_t>(actual)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << std::hexfloat << actual << " instead of " << expected;
}

inline ::testing::AssertionResult same_bits(const SparseVector& expected, const SparseVector& actual) {
  if (expected.dim != actual.dim) {
    return ::testing::AssertionFailure() << "dim " << actual.dim << " instead of " << expected.dim;
  }
  if (expected.indices.size() != actual.indices.size()) {
    return ::testing::AssertionFailure() << actual.indices.size() << " indices instead of " << expected.indices.size();
  }
  for (std::size_t i = 0; i < expected.indices.size(); ++i) {
    if (expected.indices[i] != actual.indices[i]) {
      return ::testing::AssertionFailure()
             << "index " << i << " is " << actual.indices[i] << " instead of " << expected.indices[i];
    }
  }
  return same_bits(std::span(expected.values), std::span(actual.values));
}

// Whether `actual` differs from `expected` by at most `relative` * (|expected| + |added|), where `added` was added and
// subtracted again.
inline ::testing::AssertionResult same_to_rounding(std::span<const float> expected, std::span<const float> actual,
                                                   std::span<const float> added, double relative = 0x1p-22) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double size = std::fabs(double{expected[i]}) + (std::isfinite(added[i]) ? std::fabs(double{added[i]}) : 0.0);
    if (!(std::fabs(double{actual[i]} - double{expected[i]}) <= relative * size + 0x1p-148)) {
      return ::testing::AssertionFailure() << std::hexfloat << "at " << i << ": " << actual[i] << " instead of "
                                           << expected[i] << " while " << added[i] << " was added and subtracted";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sparsewire
