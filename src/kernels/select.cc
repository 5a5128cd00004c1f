#include "kernels/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace sparsewire::kernels {
namespace {

constexpr int kDigitBits = 11;     // 2048 counters of 4 bytes stay in the L1 cache
constexpr std::size_t kFew = 512;  // below this, clearing and scanning the counters costs more than it saves

}  // namespace

// Radix select from the top digit of (key - lowest key): each round keeps the keys of one bucket only.
Kth kth_largest(const std::uint32_t* keys, std::size_t n, std::size_t k, std::uint32_t* scratch) noexcept {
  std::size_t above = 0;  // keys that are known to be larger than all remaining ones
  while (n > kFew) {
    std::uint32_t low = keys[0];
    std::uint32_t high = keys[0];
    for (std::size_t i = 1; i < n; ++i) {
      low = std::min(low, keys[i]);
      high = std::max(high, keys[i]);
    }
    if (low == high) return {low, above};
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kDigitBits);
    std::array<std::uint32_t, std::size_t{1} << kDigitBits> counts{};
    for (std::size_t i = 0; i < n; ++i) ++counts[(keys[i] - low) >> shift];
    std::size_t bucket = (high - low) >> shift;
    while (above + counts[bucket] < k) above += counts[bucket--];
    if (shift == 0) return {low + static_cast<std::uint32_t>(bucket), above};
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t key = keys[i];  // `scratch` and `keys` may be the same array
      scratch[kept] = key;
      kept += static_cast<std::size_t>((key - low) >> shift == bucket);
    }
    keys = scratch;
    n = kept;
  }
  std::copy_n(keys, n, scratch);
  std::nth_element(scratch, scratch + (k - above - 1), scratch + n, std::greater<>());
  const std::uint32_t key = scratch[k - above - 1];
  return {key, above + static_cast<std::size_t>(std::count_if(scratch, scratch + n, [&](auto x) { return x > key; }))};
}

// Every candidate is written to both lists, and only one of the two write positions advances: no branch to mispredict.
std::size_t split(Kth kth, std::size_t k, std::size_t n, std::uint32_t* indices, float* values,
                  const std::uint32_t* keys, std::uint32_t* lost_indices, float* lost_values) noexcept {
  std::size_t equals_left = k - kth.above;
  std::size_t stay = 0;
  std::size_t lost = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t index = indices[i];
    const std::uint32_t key = keys[i];
    const float value = values[i];
    const std::size_t equal = key == kth.key ? 1 : 0;
    const std::size_t wins = key > kth.key || (equal != 0 && equals_left != 0) ? 1 : 0;
    equals_left -= equal & wins;
    lost_indices[lost] = index;
    lost_values[lost] = value;
    lost += 1 - wins;
    indices[stay] = index;
    values[stay] = value;
    stay += wins;
  }
  return stay;
}

}  // namespace sparsewire::kernels
