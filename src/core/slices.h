// Divides a loop over many items among the threads of a pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>

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

// Calls work(item, thread) for the items 0 .. n - 1; thread t of T has the items t, t + T, and so on. If calls throw,
// the exception of the lowest item is thrown again, after all other calls.
template <class Work>
void for_each_item(Pool* pool, std::size_t n, Work work) {
  if (pool == nullptr || pool->size() == 1 || n < 2) {
    for (std::size_t item = 0; item < n; ++item) work(item, std::size_t{0});
    return;
  }
  const auto threads = static_cast<std::size_t>(pool->size());
  std::mutex mutex;
  std::size_t failed = n;
  std::exception_ptr thrown;
  pool->run([&](int thread) {
    for (auto item = static_cast<std::size_t>(thread); item < n; item += threads) {
      try {
        work(item, static_cast<std::size_t>(thread));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (item >= failed) continue;
        failed = item;
        thrown = std::current_exception();
      }
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace sparsewire
