#include "numbers.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "cuda_array_interface.h"
#include "dlpack.h"
#include "sparsewire/device.h"
#include "sparsewire/errors.h"

static_assert(std::endian::native == std::endian::little, "the formats of buffers below are little-endian");

namespace sparsewire::python {
namespace {

bool is_host(std::int32_t device) { return device == dlpack::kCpu || device == dlpack::kCudaHost; }
bool is_gpu(std::int32_t device) { return device == dlpack::kCuda || device == dlpack::kCudaManaged; }

constexpr const char* kAccepted = "float32, float16 or bfloat16";

[[noreturn]] void refuse(std::string_view what, const std::string& why) {
  throw UsageError(fmt::format("[{}] {}", what, why));
}

// A format of the buffer protocol without its mark of native or little-endian order.
std::string_view plain(const char* format) {
  std::string_view text = format == nullptr ? "B" : format;
  if (!text.empty() && (text.front() == '<' || text.front() == '=' || text.front() == '@')) text.remove_prefix(1);
  return text;
}

// Fails with BufferError where the object has no such buffer.
std::shared_ptr<Py_buffer> get_buffer(py::handle object, int flags) {
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), flags) != 0) return nullptr;
  return {buffer.release(), [](Py_buffer* held) {
            PyBuffer_Release(held);
            delete held;
          }};
}

// The buffer of an array in C order. Throws if it is not in that order, or must be writable and is not.
std::shared_ptr<Py_buffer> get_array(py::handle array, bool writes, std::string_view what) {
  auto buffer = get_buffer(array, PyBUF_STRIDES | PyBUF_FORMAT);
  if (buffer == nullptr) throw py::error_already_set();
  if (writes && buffer->readonly != 0) refuse(what, "the array is read-only, and it is to be written");
  if (PyBuffer_IsContiguous(buffer.get(), 'C') == 0) {
    refuse(what, "the array is not contiguous (C order): pass numpy.ascontiguousarray(...)");
  }
  return buffer;
}

std::optional<NumberType> type_of(std::string_view format) {
  if (format == "f") return NumberType::f32;
  if (format == "e") return NumberType::f16;
  return std::nullopt;
}

std::optional<NumberType> type_of(const dlpack::DataType& type) {
  if (type.lanes != 1) return std::nullopt;
  if (type.code == dlpack::kFloat && type.bits == 32) return NumberType::f32;
  if (type.code == dlpack::kFloat && type.bits == 16) return NumberType::f16;
  if (type.code == dlpack::kBfloat && type.bits == 16) return NumberType::bf16;
  return std::nullopt;
}

// What the array itself says its type is; for an error message.
std::string dtype_text(py::handle array) {
  if (!py::hasattr(array, "dtype")) return std::string(py::str(py::type::handle_of(array).attr("__name__")));
  return std::string(py::str(array.attr("dtype")));
}

std::size_t size_of(const dlpack::Tensor& tensor) {
  std::size_t size = 1;
  for (std::int32_t d = 0; d < tensor.dimensions; ++d) size *= static_cast<std::size_t>(tensor.shape[d]);
  return size;
}

bool is_in_c_order(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t d = tensor.dimensions - 1; d >= 0; --d) {
    if (tensor.shape[d] == 0) return true;
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

// The capsule of array.__dlpack__(), with a stream for arrays on a GPU. Producers from before DLPack 1.0 do not know
// max_version.
py::object export_tensor(py::handle array, const py::dict& stream = {}) {
  const py::object method = array.attr("__dlpack__");
  try {
    return method(py::arg("max_version") = py::make_tuple(1, 0), **stream);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**stream);
}

template <class Managed>
std::shared_ptr<void> own(Managed* managed) {
  return {managed, [](void* held) {
            auto* const tensor = static_cast<Managed*>(held);
            if (tensor->deleter != nullptr) tensor->deleter(tensor);
          }};
}

dlpack::Borrowed take(const py::object& capsule, std::string_view what) {
  PyObject* const object = capsule.ptr();
  if (PyCapsule_IsValid(object, "dltensor_versioned") != 0) {
    auto* const managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(object, "dltensor_versioned"));
    PyCapsule_SetName(object, "used_dltensor_versioned");
    dlpack::Borrowed taken{own(managed), nullptr, false};
    if (managed->version.major != 1) refuse(what, fmt::format("DLPack {} is not known", managed->version.major));
    taken.tensor = &managed->tensor;
    taken.is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return taken;
  }
  if (PyCapsule_IsValid(object, "dltensor") == 0) refuse(what, "__dlpack__() returned no tensor");
  auto* const managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(object, "dltensor"));
  PyCapsule_SetName(object, "used_dltensor");
  return {own(managed), &managed->tensor, false};
}

// The stream that torch works on, if this is a tensor of torch.
std::optional<void*> stream_of_torch(py::handle array, int device) {
  const py::dict modules = py::module_::import("sys").attr("modules");
  if (!modules.contains("torch")) return std::nullopt;
  const py::object torch = modules["torch"];
  if (!py::hasattr(torch, "Tensor") || !py::isinstance(array, torch.attr("Tensor"))) return std::nullopt;
  const py::object stream = torch.attr("cuda").attr("current_stream")(device);
  return reinterpret_cast<void*>(py::cast<std::uintptr_t>(stream.attr("cuda_stream")));
}

void check_has_cuda(std::string_view what) {
  if (has_cuda()) return;
  refuse(what,
         "the array is on a GPU, and this build has no code for GPUs: copy it to the host (tensor.cpu(), "
         "cupy.asnumpy(array)), or build sparsewire with -DSPARSEWIRE_CUDA=ON");
}

py::module_ numpy() { return py::module_::import("numpy"); }

}  // namespace

Numbers::Numbers(py::handle array, Access access, std::string_view what) {
  if (py::isinstance<py::tuple>(array)) {
    borrow_pointer(py::reinterpret_borrow<py::tuple>(array), what);
  } else if (PyObject_CheckBuffer(array.ptr()) != 0 && !py::hasattr(array, "__cuda_array_interface__")) {
    borrow_buffer(array, access, what);
  } else if (py::hasattr(array, "__dlpack__")) {
    borrow_tensor(array, access, what);
  } else if (py::hasattr(array, "__cuda_array_interface__")) {
    borrow_cuda_array(array, access, what);
  } else {
    throw py::type_error(fmt::format(
        "[{}] takes an array of {} (numpy, torch, CuPy, or anything with the buffer protocol, __dlpack__ or "
        "__cuda_array_interface__), not {}",
        what, kAccepted, dtype_text(array)));
  }
}

Gradient Numbers::gradient() const noexcept {
  Gradient found(data_, type_, size_);
  found.device = device_;
  found.stream = stream_;
  return found;
}

WritableNumbers Numbers::writable() const noexcept {
  WritableNumbers found(data_, type_, size_);
  found.device = device_;
  found.stream = stream_;
  return found;
}

void Numbers::wait_until_written() const {
  if (must_wait_) synchronize(device_, stream_);
}

void Numbers::borrow_pointer(const py::tuple& parts, std::string_view what) {
  if (parts.size() != 3 && parts.size() != 5) {
    throw py::type_error(
        fmt::format("[{}] a pointer is (address, 'f32' | 'f16' | 'bf16', size), and for an array on a "
                    "GPU (address, type, size, index of the GPU, stream)",
                    what));
  }
  data_ = reinterpret_cast<void*>(py::cast<std::uintptr_t>(parts[0]));
  const auto type = py::cast<std::string>(parts[1]);
  size_ = py::cast<std::size_t>(parts[2]);
  if (type == "f32") {
    type_ = NumberType::f32;
  } else if (type == "f16") {
    type_ = NumberType::f16;
  } else if (type == "bf16") {
    type_ = NumberType::bf16;
  } else {
    refuse(what, fmt::format("'{}' is no type of numbers: f32, f16, bf16", type));
  }
  if (data_ == nullptr && size_ != 0) refuse(what, fmt::format("a null pointer to {} numbers", size_));
  if (parts.size() == 3) return;
  check_has_cuda(what);
  device_ = {Device::cuda, py::cast<int>(parts[3])};
  stream_ = reinterpret_cast<void*>(py::cast<std::uintptr_t>(parts[4]));
}

void Numbers::borrow_buffer(py::handle array, Access access, std::string_view what) {
  const auto buffer = get_array(array, access == Access::write, what);
  const auto type = type_of(plain(buffer->format));
  if (!type) refuse(what, fmt::format("an array of {}: {} is needed", dtype_text(array), kAccepted));
  type_ = *type;
  data_ = buffer->buf;
  size_ = static_cast<std::size_t>(buffer->len) / (type_ == NumberType::f32 ? 4 : 2);
  owner_ = buffer;
}

void Numbers::borrow_tensor(py::handle array, Access access, std::string_view what) {
  if (py::hasattr(array, "__dlpack_device__")) {
    const py::tuple device = array.attr("__dlpack_device__")();
    const auto kind = py::cast<std::int32_t>(py::int_(device[0]));
    if (is_gpu(kind)) return borrow_tensor_on_gpu(array, py::cast<int>(py::int_(device[1])), access, what);
    if (!is_host(kind)) {
      const std::string where = py::hasattr(array, "device") ? std::string(py::str(array.attr("device"))) : "a device";
      refuse(what, fmt::format("the tensor is on {}: it must be on the CPU or on a CUDA device", where));
    }
  }
  const dlpack::Borrowed borrowed = take(export_tensor(array), what);
  if (!is_host(borrowed.tensor->device.type)) {
    refuse(what, "the tensor is on a device, but has no __dlpack_device__()");
  }
  use_tensor(borrowed, array, access, what);
}

void Numbers::borrow_tensor_on_gpu(py::handle array, int index, Access access, std::string_view what) {
  check_has_cuda(what);
  const auto stream = stream_of_torch(array, index);
  if (!stream && py::hasattr(array, "__cuda_array_interface__")) return borrow_cuda_array(array, access, what);
  // The owner lets the stream wait until the array is ready: 1 is the default stream. The stream of torch needs no wait
  // (-1), because it is the one that torch works on.
  py::dict asked;
  asked["stream"] = stream ? -1 : 1;
  const dlpack::Borrowed borrowed = take(export_tensor(array, asked), what);
  if (!is_gpu(borrowed.tensor->device.type))
    refuse(what, "__dlpack__() and __dlpack_device__() name different devices");
  use_tensor(borrowed, array, access, what);
  device_ = {Device::cuda, borrowed.tensor->device.index};
  stream_ = stream.value_or(nullptr);
  must_wait_ = !stream;
}

void Numbers::use_tensor(const dlpack::Borrowed& borrowed, py::handle array, Access access, std::string_view what) {
  const dlpack::Tensor& tensor = *borrowed.tensor;
  if (access == Access::write && borrowed.is_read_only) {
    refuse(what, "the tensor is read-only, and it is to be written");
  }
  const auto type = type_of(tensor.type);
  if (!type) refuse(what, fmt::format("a tensor of {}: {} is needed", dtype_text(array), kAccepted));
  if (!is_in_c_order(tensor)) refuse(what, "the tensor is not contiguous (C order): pass tensor.contiguous()");
  type_ = *type;
  data_ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  size_ = size_of(tensor);
  owner_ = borrowed.owner;
}

void Numbers::borrow_cuda_array(py::handle array, Access access, std::string_view what) {
  const CudaArrayInterface found(array.attr("__cuda_array_interface__"), what);
  if (access == Access::write && found.is_read_only) refuse(what, "the array is read-only, and it is to be written");
  check_has_cuda(what);
  const auto device = device_of(found.data);
  if (!device && found.size != 0) refuse(what, "the address in __cuda_array_interface__ is not in the memory of a GPU");
  type_ = found.type;
  data_ = found.data;
  size_ = found.size;
  device_ = device.value_or(Device{Device::cuda, 0});
  stream_ = found.stream.value_or(nullptr);
  must_wait_ = !found.stream;
  Py_INCREF(array.ptr());
  owner_ = {array.ptr(), [](void* held) { Py_DECREF(static_cast<PyObject*>(held)); }};
}

Bytes::Bytes(py::handle bytes) {
  buffer_ = get_buffer(bytes, PyBUF_SIMPLE);
  if (buffer_ == nullptr) throw py::error_already_set();
  bytes_ = {static_cast<const std::byte*>(buffer_->buf), static_cast<std::size_t>(buffer_->len)};
}

Doubles::Doubles(py::handle array, std::string_view what) {
  if (PyObject_CheckBuffer(array.ptr()) == 0) throw py::type_error(fmt::format("[{}] takes a numpy array", what));
  buffer_ = get_array(array, true, what);
  if (plain(buffer_->format) != "d") refuse(what, fmt::format("an array of {}: float64 is needed", dtype_text(array)));
  doubles_ = {static_cast<double*>(buffer_->buf), static_cast<std::size_t>(buffer_->len) / sizeof(double)};
}

std::vector<std::uint32_t> to_indices(py::handle indices, std::string_view what) {
  const py::array array = numpy().attr("asarray")(indices);
  if (array.ndim() != 1) refuse(what, fmt::format("indices have one dimension, not {}", array.ndim()));
  if (array.size() == 0) return {};
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'u') refuse(what, fmt::format("indices are integers, not {}", dtype_text(array)));
  if (const auto ready = py::array_t<std::uint32_t, py::array::c_style>::ensure(array);
      ready && array.dtype().equal(py::dtype::of<std::uint32_t>())) {
    return {ready.data(), ready.data() + ready.size()};
  }
  const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!wide) throw py::error_already_set();
  std::vector<std::uint32_t> result(static_cast<std::size_t>(wide.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t index = wide.data()[i];
    if (index < 0 || index > std::numeric_limits<std::uint32_t>::max()) {
      refuse(what, fmt::format("index {} is not in [0, 2^32)", index));
    }
    result[i] = static_cast<std::uint32_t>(index);
  }
  return result;
}

std::vector<float> to_floats(py::handle values, std::string_view what) {
  const py::array array = numpy().attr("asarray")(values);
  const char kind = array.dtype().kind();
  if (array.ndim() != 1) refuse(what, fmt::format("values have one dimension, not {}", array.ndim()));
  if (kind != 'f' && kind != 'i' && kind != 'u') {
    refuse(what, fmt::format("values are numbers, not {}", dtype_text(array)));
  }
  const auto floats = py::array_t<float, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!floats) throw py::error_already_set();
  return {floats.data(), floats.data() + floats.size()};
}

Layout to_layout(py::handle layout) {
  const auto size_of_tensor = [](py::handle size) {
    const py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(size.ptr()));
    if (!number) throw py::error_already_set();
    const long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (value < 0) throw UsageError(fmt::format("[layout] a tensor of {} entries", value));
    return static_cast<std::uint64_t>(value);
  };
  if (PyIndex_Check(layout.ptr()) != 0) return Layout(size_of_tensor(layout));
  if (py::isinstance<py::str>(layout))
    throw py::type_error("[layout] an int, a dict of name to size, or (name, size)s");
  const py::object pairs =
      py::hasattr(layout, "items") ? py::object(layout.attr("items")()) : py::reinterpret_borrow<py::object>(layout);
  std::vector<TensorRange> tensors;
  for (const py::handle pair : pairs) {
    const py::tuple both = py::tuple(py::reinterpret_borrow<py::object>(pair));
    if (both.size() != 2) throw py::type_error("[layout] each tensor is (name, size)");
    tensors.push_back({.name = py::cast<std::string>(both[0]), .size = size_of_tensor(both[1])});
  }
  return Layout(std::move(tensors));
}

py::list from_layout(const Layout& layout) {
  py::list tensors;
  for (const TensorRange& tensor : layout.tensors()) tensors.append(py::make_tuple(tensor.name, tensor.size));
  return tensors;
}

}  // namespace sparsewire::python
