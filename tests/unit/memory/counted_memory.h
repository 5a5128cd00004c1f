// Every operator new of this program is counted, and can be made to fail (counted_memory.cc).
#pragma once

#include <atomic>
#include <cstddef>

namespace sparsewire {

// Since the last reset.
struct CountedMemory {
  std::atomic<long> allocations{0};
  std::atomic<std::size_t> live{0};  // bytes
  std::atomic<std::size_t> peak{0};

  std::atomic<long> left_until_failure{-1};  // counts down; the one at zero throws std::bad_alloc, negative ones do not

  void reset() {
    allocations = 0;
    live = 0;
    peak = 0;
  }
};

extern CountedMemory counted_memory;
// The same as left_until_failure for the allocations of this thread alone: of one rank.
extern thread_local long left_until_failure_here;

}  // namespace sparsewire
