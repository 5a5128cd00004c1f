// The divisor of Golomb's code: searched for each frame, as real supports are not random.
//
// For random ones ln 2 times the mean gap is best. Where entries stand in clusters a divisor just below a power of two
// can be better, which gives the many small gaps the shorter remainders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/golomb.h"

namespace sparsewire {

// The best divisor for gaps that add up to `sum`, of which `gap(i)`, i < count, is the number i. Not less than a
// quarter of what is best for random gaps, so that no sample, however unlucky, makes the code much longer than that.
template <class Gap>
kernels::GolombCode search_divisor(std::size_t count, std::uint64_t sum, Gap&& gap);

// The same for a sample of gaps.
kernels::GolombCode search_divisor(std::span<const float> sample, double mean) noexcept;

// How many bytes `count` codes of gaps that add up to `sum` can take in one stream at most, with a BitWriter's margin.
std::size_t most_bytes(const kernels::GolombCode& code, std::size_t count, std::uint64_t sum) noexcept;

template <class Gap>
kernels::GolombCode search_divisor(std::size_t count, std::uint64_t sum, Gap&& gap) {
  constexpr std::size_t kLeastSample = 2048;
  constexpr std::size_t kMostSample = 16384;
  constexpr std::size_t kStretch = 32;  // neighbours, so that the sample has the clusters of the whole
  constexpr float kMost = 1U << 30;     // of a gap in a sample: no search needs to tell larger ones apart
  std::array<float, kMostSample> sample;
  const std::size_t most = std::clamp(count / 64, kLeastSample, kMostSample) / kStretch * kStretch;
  std::size_t size = 0;
  const auto look_at = [&](std::size_t i) { sample[size++] = std::min(static_cast<float>(gap(i)), kMost); };
  if (count <= most) {
    for (std::size_t i = 0; i < count; ++i) look_at(i);
  } else {
    const std::size_t stretches = most / kStretch;
    for (std::size_t s = 0; s < stretches; ++s) {
      const std::size_t begin = (count - kStretch) * s / (stretches - 1);
      for (std::size_t i = begin; i < begin + kStretch; ++i) look_at(i);
    }
  }
  const double mean = count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
  return search_divisor(std::span(sample).first(size), mean);
}

}  // namespace sparsewire
