// Arrays on the device of these tests: a GPU (tests/cuda), or a pretended one on the host (pretended_device.cc).
#pragma once

#include <cstddef>
#include <string>

#include "sparsewire/gradient.h"

namespace sparsewire::device_test {

// Why there is no device; empty if there is one.
std::string why_none();
// Whether it is fast: then the tests take large models, too.
bool is_fast();
inline constexpr Device kDevice{Device::cuda, 0};

// A stream of the device, other than its default.
void* stream();

// A copy of some bytes on the device.
class Copy {
 public:
  Copy(const void* bytes, std::size_t size);
  ~Copy();
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  void* data() const noexcept { return data_; }
  void read(void* bytes) const;

 private:
  void* data_;
  std::size_t size_;
};

}  // namespace sparsewire::device_test
