// What only the pretended device can tell (pretended_device.cc).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "sparsewire/errors.h"

namespace sparsewire::device_test {

// How often its memories have gone through the choices of all units since this thread began.
std::size_t tables_made();

// The next DeviceMemory::take_all() or DeviceSum::read() of this thread throws.
void fail_next_call();

// An address that no program can have becomes one that it has, and the other way round.
template <class T>
T* other_side(T* pointer) {
  if (pointer == nullptr) throw UsageError("no array");
  return std::bit_cast<T*>(std::bit_cast<std::uintptr_t>(pointer) ^ (std::uintptr_t{1} << 62));
}

}  // namespace sparsewire::device_test
