// Arrays in and out. What Python passes is borrowed without a copy; what goes back is a numpy array that owns its data.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"

namespace sparsewire::python {

namespace py = pybind11;

// An array of Python, borrowed for as long as this lives: anything with the buffer protocol (numpy: float32, float16),
// anything with __dlpack__ (torch: float32, float16, bfloat16, on the CPU), or the tuple (address, "f32", size), for
// which the caller keeps the memory alive. Any shape, in C order.
//
// Throws UsageError for a wrong type, order or device, and py::type_error for what is no array.
// THREADS: created and destroyed with the GIL held.
class Numbers {
 public:
  enum class Access : std::uint8_t { read, write };

  Numbers() = default;
  Numbers(py::handle array, Access access, std::string_view what);

  Gradient gradient() const noexcept { return {data_, type_, size_}; }
  WritableNumbers writable() const noexcept { return {data_, type_, size_}; }

 private:
  void borrow_pointer(const py::tuple& triple, std::string_view what);
  void borrow_buffer(py::handle array, Access access, std::string_view what);
  void borrow_tensor(py::handle array, Access access, std::string_view what);

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  NumberType type_ = NumberType::f32;
  std::size_t size_ = 0;
};

// A buffer of bytes, borrowed: bytes, bytearray, memoryview, a numpy array in C order.
class Bytes {
 public:
  explicit Bytes(py::handle bytes);

  std::span<const std::byte> span() const noexcept { return bytes_; }

 private:
  std::shared_ptr<Py_buffer> buffer_;
  std::span<const std::byte> bytes_;
};

// The float64 array of that many entries, which is changed in place.
class Doubles {
 public:
  Doubles(py::handle array, std::string_view what);

  std::span<double> span() const noexcept { return doubles_; }

 private:
  std::shared_ptr<Py_buffer> buffer_;
  std::span<double> doubles_;
};

// Indices of entries from anything that numpy makes an array of integers of; each in [0, 2^32). A copy.
std::vector<std::uint32_t> to_indices(py::handle indices, std::string_view what);
// A copy, converted to float32.
std::vector<float> to_floats(py::handle values, std::string_view what);

// An int, a dict of name to size, or a sequence of (name, size).
Layout to_layout(py::handle layout);
py::list from_layout(const Layout& layout);

inline py::bytes to_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An array that takes the numbers over.
template <class T>
py::array_t<T> to_array(std::vector<T>&& numbers) {
  auto* const owned = new std::vector<T>(std::move(numbers));
  const py::capsule owner(owned, [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  return py::array_t<T>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

// A read-only view of numbers that `owner` keeps alive.
template <class T>
py::array_t<T> view_of(std::span<const T> numbers, py::handle owner) {
  py::array_t<T> view(static_cast<py::ssize_t>(numbers.size()), numbers.data(), owner);
  view.attr("flags").attr("writeable") = false;
  return view;
}

}  // namespace sparsewire::python
