// The sum of both engines' all_reduce_sum: in rank order; bf16 numbers are summed in f32 and rounded once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "sparsewire/support/half.h"

namespace sparsewire {

inline float widened(float number) noexcept { return number; }
inline float widened(std::uint16_t bits) noexcept { return from_bf16(bits); }
inline void narrow(float sum, float& number) noexcept { number = sum; }
inline void narrow(float sum, std::uint16_t& bits) noexcept { bits = to_bf16(sum); }

// out[i] = the sum over r of of(r)[i], i < count. `out` may be one of them.
template <class Number, class Of>
void sum_in_rank_order(int ranks, Of&& of, std::size_t count, Number* out) {
  constexpr std::size_t kBlock = 2048;  // fits into the cache
  std::array<float, kBlock> sums;
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t size = std::min(kBlock, count - done);
    const Number* const first = of(0) + done;
    for (std::size_t i = 0; i < size; ++i) sums[i] = widened(first[i]);
    for (int r = 1; r < ranks; ++r) {
      const Number* const theirs = of(r) + done;
      for (std::size_t i = 0; i < size; ++i) sums[i] += widened(theirs[i]);
    }
    for (std::size_t i = 0; i < size; ++i) narrow(sums[i], out[done + i]);
  }
}

}  // namespace sparsewire
