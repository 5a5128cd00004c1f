// What only the pretended device can tell (pretended_device.cc).
#pragma once

#include <cstddef>

namespace sparsewire::device_test {

// How often its memories have gone through the choices of all units since this thread began.
std::size_t tables_made();

// The next DeviceMemory::take_all() or DeviceSum::read() of this thread throws.
void fail_next_call();

}  // namespace sparsewire::device_test
