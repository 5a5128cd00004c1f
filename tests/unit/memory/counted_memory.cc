#include "unit/memory/counted_memory.h"

#include <cstdlib>
#include <new>

namespace sparsewire {

CountedMemory counted_memory;
thread_local long left_until_failure_here = -1;

namespace {

// The size is stored in front of what is returned.
void* counted_new(std::size_t size, std::size_t alignment) {
  ++counted_memory.allocations;
  if (counted_memory.left_until_failure >= 0 && counted_memory.left_until_failure-- == 0) throw std::bad_alloc();
  if (left_until_failure_here >= 0 && left_until_failure_here-- == 0) throw std::bad_alloc();
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(alignment, alignment + rounded));
  if (memory == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(memory) = size;
  counted_memory.live += size;
  if (counted_memory.live > counted_memory.peak) counted_memory.peak = counted_memory.live.load();
  return memory + alignment;
}

void counted_delete(void* memory, std::size_t alignment) noexcept {
  if (memory == nullptr) return;
  std::byte* const begin = static_cast<std::byte*>(memory) - alignment;
  const std::size_t size = *reinterpret_cast<const std::size_t*>(begin);
  counted_memory.live -=
      size < counted_memory.live ? size : counted_memory.live.load();  // may have been allocated before the reset
  std::free(begin);
}

}  // namespace
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
