#include "cuda_array_interface.h"

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

[[noreturn]] void refuse_interface(std::string_view what, const std::string& why) {
  throw UsageError(fmt::format("[{}] __cuda_array_interface__: {}", what, why));
}

pybind11::object part_of(const pybind11::dict& said, const char* name) {
  return said.contains(name) ? pybind11::object(said[name]) : pybind11::none();
}

// Strides are in bytes.
bool is_in_c_order(const pybind11::tuple& shape, const pybind11::tuple& strides, std::int64_t bytes) {
  std::int64_t expected = bytes;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto length = pybind11::cast<std::int64_t>(shape[d]);
    if (length == 0) return true;
    if (length != 1 && pybind11::cast<std::int64_t>(strides[d]) != expected) return false;
    expected *= length;
  }
  return true;
}

}  // namespace

CudaArrayInterface::CudaArrayInterface(const pybind11::dict& said, std::string_view what) {
  const auto type_text = pybind11::cast<std::string>(part_of(said, "typestr"));
  if (type_text == "<f4") {
    type = NumberType::f32;
  } else if (type_text == "<f2") {
    type = NumberType::f16;
  } else {
    refuse_interface(
        what, fmt::format("an array of {}: float32 or float16 is needed; bfloat16 comes by __dlpack__", type_text));
  }
  const std::int64_t bytes = type == NumberType::f32 ? 4 : 2;
  const pybind11::tuple shape = said["shape"];
  size = 1;
  for (const pybind11::handle length : shape) size *= pybind11::cast<std::size_t>(length);
  if (const pybind11::object strides = part_of(said, "strides"); !strides.is_none()) {
    if (!is_in_c_order(shape, strides, bytes)) {
      refuse_interface(what, "the array is not contiguous (C order): pass cupy.ascontiguousarray(...)");
    }
  }
  if (!part_of(said, "mask").is_none()) refuse_interface(what, "the array has a mask");
  const pybind11::tuple pointer = said["data"];
  data = reinterpret_cast<void*>(pybind11::cast<std::uintptr_t>(pointer[0]));
  is_read_only = pybind11::cast<bool>(pointer[1]);
  if (const pybind11::object given = part_of(said, "stream"); !given.is_none()) {
    // 1 and 2 are the default streams, as CUDA numbers them too.
    stream = reinterpret_cast<void*>(pybind11::cast<std::uintptr_t>(given));
    if (*stream == nullptr) refuse_interface(what, "stream 0 is ambiguous, and not allowed");
  }
}

}  // namespace sparsewire::python
