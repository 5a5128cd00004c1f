// A build without CUDA: arrays on a device are refused.
#include "sparsewire/device.h"
#include "sparsewire/errors.h"
#include "sparsify/device_memory.h"
#include "sparsify/device_sum.h"

namespace sparsewire {
namespace {

[[noreturn]] void refuse() {
  throw UsageError("this build cannot use arrays on a device: copy them to the host, or build with SPARSEWIRE_CUDA=ON");
}

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory(Device, std::size_t) { refuse(); }
std::unique_ptr<DeviceArrays> make_device_arrays(Device) { refuse(); }
std::unique_ptr<DeviceSum> make_device_sum(Device, std::size_t) { refuse(); }

bool has_cuda() noexcept { return false; }
bool is_usable(Device device) noexcept { return device.kind == Device::host; }
std::optional<Device> device_of(const void*) noexcept { return std::nullopt; }
void synchronize(Device device, void*) {
  if (device.kind != Device::host) refuse();
}

}  // namespace sparsewire
