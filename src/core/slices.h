// Divides a loop over many items among the threads of a pool.
#pragma once

#include <algorithm>
#include <cstddef>

#include "sparsewire/pool.h"

namespace sparsewire {

// Calls work(begin, end, thread) for consecutive slices of [0, n), one for each thread of the pool, on these threads.
// Slices begin at multiples of `grain`. Fewer than 4 grains are one slice, on the calling thread: waking the others
// would cost more. REQUIRES: work does not throw.
template <class Work>
void for_each_slice(Pool* pool, std::size_t n, std::size_t grain, Work work) {
  const std::size_t grains = (n + grain - 1) / grain;
  if (pool == nullptr || pool->size() == 1 || grains < 4) return work(std::size_t{0}, n, 0);
  const auto threads = static_cast<std::size_t>(pool->size());
  const auto cut = [&](std::size_t thread) { return std::min(n, grains * thread / threads * grain); };
  pool->run([&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    work(cut(t), cut(t + 1), thread);
  });
}

}  // namespace sparsewire
