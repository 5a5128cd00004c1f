// Arrays on a GPU, for programs that do not use CUDA themselves, such as the Python module.
#pragma once

#include <optional>

#include "sparsewire/gradient.h"

namespace sparsewire {

// Whether this build has code for GPUs.
bool has_cuda() noexcept;

// Whether arrays on the device can be used: this build has code for it, and this machine has the device.
bool is_usable(Device device) noexcept;

// The device that an array is on; nothing if it is an array of the host, or of nobody.
std::optional<Device> device_of(const void* data) noexcept;

// Waits until everything that is queued on the stream is done. Throws UsageError if there is no such device, or
// std::runtime_error if the device has failed.
void synchronize(Device device, void* stream);

}  // namespace sparsewire
