// The sum of full vectors that are on one device: the update of ranks that are threads of one process, without a copy
// on the host. For the exchange `dense`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sparsewire/gradient.h"

namespace sparsewire {

// Of one rank. Every result has the bits that the processor gives. THREADS: one caller at a time. Throws UsageError if
// an array of the caller is not in the memory of the device, or std::runtime_error if the device fails.
class DeviceSum {
 public:
  virtual ~DeviceSum() = default;

  // Writes weight * numbers to an array that other ranks may read when this returns, and returns that array. REQUIRES:
  // no rank reads what was given before.
  virtual const float* give(const Gradient& numbers, float weight) = 0;
  // Adds up what all ranks gave, in this order; returns when that is done. Returns the lowest index at which the sum is
  // not finite.
  virtual std::optional<std::size_t> add(std::span<const float* const> given) = 0;

  // The following use the sum. crc32c_extend() of its bytes:
  virtual std::uint32_t extend_checksum(std::uint32_t checksum) = 0;
  // A copy on the host.
  virtual void read(std::span<float> to) = 0;
  // to = factor * sum and from -= factor * sum, as in DeviceArrays.
  virtual void write(float factor, const WritableNumbers& to) = 0;
  virtual void subtract(float factor, const WritableNumbers& from) = 0;
};

// Throws UsageError if this build has no code for it, or there is no such device. Defined in cuda/, or in
// cuda/no_cuda.cc.
std::unique_ptr<DeviceSum> make_device_sum(Device device, std::size_t size);

}  // namespace sparsewire
