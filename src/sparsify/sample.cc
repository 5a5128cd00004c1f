#include "sparsify/sample.h"

#include <algorithm>
#include <cmath>

#include "kernels/select.h"

namespace sparsewire {
namespace {

constexpr std::size_t kSampleLeast = 4096;
constexpr std::size_t kSampleMost =
    65536;  // two cache misses for each: about a tenth of the time of a pass over 25M entries

float sum_at(const kernels::ScaledGradient* gradient, const float* memory, std::size_t i) {
  if (gradient == nullptr) return memory[i];
  return gradient->decay * memory[i] + gradient->scale * kernels::number_at(*gradient, i);
}

}  // namespace

std::size_t sample_size(std::size_t n) noexcept { return std::min(n, std::clamp(n / 64, kSampleLeast, kSampleMost)); }

std::uint32_t sample_threshold(const Unit& unit, std::size_t from, std::size_t to,
                               const kernels::ScaledGradient* gradient, const float* memory, std::size_t k,
                               std::uint32_t* keys) noexcept {
  const std::size_t n = to - from;
  const std::size_t size = sample_size(n);
  if (size == 0) return kernels::kLowestKey;
  // One position in each of `size` equal stretches. Its place within the stretch changes by the golden ratio, so that
  // the positions do not coincide with a period of the model's layout.
  const double stretch = static_cast<double>(n) / static_cast<double>(size);
  double jitter = 0;
  std::size_t segment = segment_at(unit, from);
  for (std::size_t s = 0; s < size; ++s) {
    const auto ahead = std::min(n - 1, static_cast<std::size_t>((static_cast<double>(s) + jitter) * stretch));
    jitter += 0.6180339887498949;
    if (jitter >= 1) jitter -= 1;
    while (from + ahead >= unit.segments[segment].position + unit.segments[segment].size) ++segment;
    const Segment& at = unit.segments[segment];
    keys[s] = kernels::key_of(sum_at(gradient, memory, at.begin + (from + ahead - at.position)));
  }
  std::size_t rank = k;
  if (size < n) {  // four standard deviations below the k-th: too low costs little, too high costs a second pass
    const double hits = static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
    rank = static_cast<std::size_t>(std::ceil(hits + 4 * std::sqrt(hits) + 4));
  }
  if (rank > size) return kernels::kLowestKey;
  const std::uint32_t key = kernels::kth_largest(keys, size, rank, keys).key;
  return std::clamp(key, kernels::kLowestKey, kernels::kInfinityKey);
}

}  // namespace sparsewire
