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

namespace dlpack {
struct Borrowed;
}  // namespace dlpack

// An array of Python, borrowed for as long as this lives: anything with the buffer protocol (numpy: float32, float16),
// with __dlpack__ (torch: float32, float16, bfloat16) or __cuda_array_interface__ (CuPy: float32, float16); or the
// tuple (address, "f32", size), with the index of a GPU and a stream where it is on one, for which the caller keeps the
// memory alive. Any shape, in C order.
//
// On a GPU, work is queued on the stream that the array's owner uses: the current one of torch, or the one that
// __cuda_array_interface__ names. For other owners it is the default stream, and wait_until_written() waits for it.
//
// Throws UsageError for a wrong type, order or device, and py::type_error for what is no array.
// THREADS: created and destroyed with the GIL held.
class Numbers {
 public:
  enum class Access : std::uint8_t { read, write };

  Numbers() = default;
  Numbers(py::handle array, Access access, std::string_view what);

  Gradient gradient() const noexcept;
  WritableNumbers writable() const noexcept;
  bool is_on_host() const noexcept { return device_.kind == Device::host; }

  // After a call that has written the array: waits, if its owner does not know the stream of that. Without the GIL.
  void wait_until_written() const;

 private:
  void borrow_pointer(const py::tuple& parts, std::string_view what);
  void borrow_buffer(py::handle array, Access access, std::string_view what);
  void borrow_tensor(py::handle array, Access access, std::string_view what);
  void borrow_tensor_on_gpu(py::handle array, int index, Access access, std::string_view what);
  void borrow_cuda_array(py::handle array, Access access, std::string_view what);
  void use_tensor(const dlpack::Borrowed& borrowed, py::handle array, Access access, std::string_view what);

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  NumberType type_ = NumberType::f32;
  std::size_t size_ = 0;
  Device device_;
  void* stream_ = nullptr;
  bool must_wait_ = false;  // the owner does not know the stream
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
