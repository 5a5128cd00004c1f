#include "merge/merger.h"

#include <algorithm>
#include <bit>

namespace sparsewire {
namespace {

constexpr std::uint64_t kWindow = 65536;  // 256 kB of sums: they stay in the second-level cache

float weight_of(std::span<const float> weights, std::size_t v) { return weights.empty() ? 1.0F : weights[v]; }

// Makes room for `size` entries, and for some more where it has to allocate: counts change a little in every step.
void make_room(SparseVector& vector, std::size_t size) {
  if (vector.indices.capacity() < size) vector.indices.reserve(size + size / 4 + 64);
  if (vector.values.capacity() < size) vector.values.reserve(size + size / 4 + 64);
  vector.indices.resize(size);
  vector.values.resize(size);
}

}  // namespace

Merger::Merger() : sums_(kWindow), touched_(kWindow / 64) {}

void Merger::sum(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
                 SparseVector& total) {
  total.dim = dim;
  total.draw.units.clear();
  std::uint64_t most = 0;  // entries of the result
  bool is_full = false;
  for (const SparseVector& vector : vectors) {
    most += vector.size();
    is_full = is_full || vector.is_full();
  }
  if (is_full) return sum_full(vectors, weights, total);
  if (vectors.size() == 1) {  // nothing to sort
    const SparseVector& only = vectors[0];
    make_room(total, only.size());
    std::copy(only.indices.begin(), only.indices.end(), total.indices.begin());
    const float weight = weight_of(weights, 0);
    for (std::size_t i = 0; i < only.size(); ++i) total.values[i] = 0.0F + weight * only.values[i];
    if (only.size() == dim) total.indices.clear();
    return;
  }

  make_room(total, std::min(most, dim));
  next_.assign(vectors.size(), 0);
  float* const sums = sums_.data();
  std::uint64_t* const touched = touched_.data();
  std::uint32_t* indices = total.indices.data();
  float* values = total.values.data();
  for (std::uint64_t begin = 0; begin < dim && most > 0; begin += kWindow) {
    const std::uint64_t size = std::min(kWindow, dim - begin);
    bool is_touched = false;
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      const std::uint32_t* const from = vectors[v].indices.data();
      const float* const numbers = vectors[v].values.data();
      const std::size_t end = vectors[v].size();
      const float weight = weight_of(weights, v);
      std::size_t i = next_[v];
      const std::size_t first = i;
      for (; i < end && from[i] - begin < size; ++i) {
        const auto at = static_cast<std::uint32_t>(from[i] - begin);
        sums[at] += weight * numbers[i];
        touched[at / 64] |= std::uint64_t{1} << at % 64;
      }
      next_[v] = i;
      is_touched = is_touched || i != first;
    }
    if (!is_touched) continue;
    const std::size_t words = (size + 63) / 64;
    for (std::size_t word = 0; word < words; ++word) {
      std::uint64_t bits = touched[word];
      if (bits == 0) continue;
      touched[word] = 0;
      const auto first = static_cast<std::uint32_t>(word * 64);
      for (; bits != 0; bits &= bits - 1) {
        const std::uint32_t at = first + static_cast<std::uint32_t>(std::countr_zero(bits));
        *indices++ = static_cast<std::uint32_t>(begin) + at;
        *values++ = sums[at];
        sums[at] = 0;
      }
    }
  }
  const auto size = static_cast<std::size_t>(values - total.values.data());
  total.values.resize(size);
  total.indices.resize(size == dim ? 0 : size);  // full: indices are not needed
}

// At least one vector is full, so the result is.
void Merger::sum_full(std::span<const SparseVector> vectors, std::span<const float> weights,
                      SparseVector& total) const {
  total.indices.clear();
  total.values.assign(total.dim, 0.0F);
  float* const sums = total.values.data();
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    const SparseVector& vector = vectors[v];
    const float weight = weight_of(weights, v);
    if (vector.is_full()) {
      for (std::size_t i = 0; i < vector.size(); ++i) sums[i] += weight * vector.values[i];
    } else {
      for (std::size_t i = 0; i < vector.size(); ++i) sums[vector.indices[i]] += weight * vector.values[i];
    }
  }
}

}  // namespace sparsewire
