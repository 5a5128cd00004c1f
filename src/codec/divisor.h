// Finds the divisor of the Golomb code for each frame, because real supports are not random.
//
// For random supports ln 2 times the mean gap is best. Where entries come in clusters, a divisor just below a power of
// two can be better: then the many small gaps get the shorter remainders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/golomb.h"

namespace sparsewire {

// The best divisor found for the `count` gaps gap(0), gap(1), ..., which add up to `sum`. It is at least a quarter of
// the best divisor for random gaps, so that even an unrepresentative sample cannot make the code much longer.
template <class Gap>
kernels::GolombCode search_divisor(std::size_t count, std::uint64_t sum, Gap&& gap);

// The same for a sample of gaps.
kernels::GolombCode search_divisor(std::span<const float> sample, double mean) noexcept;

// An upper bound for the bytes of one stream with the codes of `count` gaps that add up to `sum`, including the margin
// that a BitWriter needs.
std::size_t most_bytes(const kernels::GolombCode& code, std::size_t count, std::uint64_t sum) noexcept;

template <class Gap>
kernels::GolombCode search_divisor(std::size_t count, std::uint64_t sum, Gap&& gap) {
  constexpr std::size_t kLeastSample = 2048;
  constexpr std::size_t kMostSample = 16384;
  constexpr std::size_t kStretch = 32;  // consecutive gaps, so that the sample shows the clusters
  constexpr float kMost = 1U << 30;     // larger gaps in a sample are cut to this: the search need not tell them apart
  std::array<float, kMostSample> sample;
  const std::size_t most = std::clamp(count / 64, kLeastSample, kMostSample) / kStretch * kStretch;
  std::size_t size = 0;
  const auto add = [&](std::size_t i) { sample[size++] = std::min(static_cast<float>(gap(i)), kMost); };
  if (count <= most) {
    for (std::size_t i = 0; i < count; ++i) add(i);
  } else {
    const std::size_t stretches = most / kStretch;
    for (std::size_t s = 0; s < stretches; ++s) {
      const std::size_t begin = (count - kStretch) * s / (stretches - 1);
      for (std::size_t i = begin; i < begin + kStretch; ++i) add(i);
    }
  }
  const double mean = count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
  return search_divisor(std::span(sample).first(size), mean);
}

}  // namespace sparsewire
