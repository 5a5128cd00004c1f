// Counts every allocation by operator new, and its bytes. Include it in one file of a program only: it replaces
// operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace sparsewire {

// Counted since the last reset.
struct CountedMemory {
  std::atomic<long> allocations{0};
  std::atomic<std::size_t> live{0};
  std::atomic<std::size_t> peak{0};

  void reset() {
    allocations = 0;
    live = 0;
    peak = 0;
  }
};

inline CountedMemory counted_memory;

// Stores the size in front of the memory that it returns.
inline void* counted_new(std::size_t size, std::size_t alignment) {
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(alignment, alignment + rounded));
  if (memory == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(memory) = size;
  ++counted_memory.allocations;
  counted_memory.live += size;
  if (counted_memory.live > counted_memory.peak) counted_memory.peak = counted_memory.live.load();
  return memory + alignment;
}

inline void counted_delete(void* memory, std::size_t alignment) noexcept {
  if (memory == nullptr) return;
  std::byte* const begin = static_cast<std::byte*>(memory) - alignment;
  const std::size_t size = *reinterpret_cast<const std::size_t*>(begin);
  counted_memory.live -=
      size < counted_memory.live ? size : counted_memory.live.load();  // may have been allocated before the reset
  std::free(begin);
}

}  // namespace sparsewire

// The array and nothrow forms call these. Not inlined: g++ would warn about aligned_alloc paired with delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return sparsewire::counted_new(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return sparsewire::counted_new(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  sparsewire::counted_delete(memory, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  sparsewire::counted_delete(memory, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t alignment) noexcept {
  sparsewire::counted_delete(memory, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  sparsewire::counted_delete(memory, static_cast<std::size_t>(alignment));
}
