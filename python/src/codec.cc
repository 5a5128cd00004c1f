// encode, decode, inspect.
#include "sparsewire/codec.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "bind.h"
#include "numbers.h"
#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

constexpr const char* kDefaultCodec = "auto";

py::bytes encode_vector(const SparseVector& vector, const std::string& codec) {
  std::vector<std::byte> frame;
  {
    const py::gil_scoped_release unlocked;
    Codec(codec).encode(vector, frame);
  }
  return to_bytes(frame);
}

// As SparseVector checks it, but without its copy being seen by Python.
py::bytes encode_arrays(const py::object& indices, const py::object& values, std::uint64_t dim,
                        const std::string& codec) {
  SparseVector vector;
  vector.dim = dim;
  vector.indices = to_indices(indices, "encode");
  vector.values = to_floats(values, "encode");
  return encode_vector(vector, codec);
}

void raise_if_broken(DecodeStatus status) {
  if (status == DecodeStatus::ok) return;
  const py::object type = py::module_::import("sparsewire._errors").attr("FormatError");
  PyErr_SetString(type.ptr(), std::string(describe(status)).c_str());
  throw py::error_already_set();
}

std::shared_ptr<SparseVector> decode_frame(const py::object& frame) {
  const Bytes bytes(frame);
  auto vector = std::make_shared<SparseVector>();
  DecodeStatus status;
  {
    const py::gil_scoped_release unlocked;
    status = decode(bytes.span(), *vector);
  }
  raise_if_broken(status);
  return vector;
}

py::dict inspect_frame(const py::object& frame) {
  const Bytes bytes(frame);
  FrameInfo info;
  DecodeStatus status;
  {
    const py::gil_scoped_release unlocked;
    status = inspect(bytes.span(), info);
  }
  raise_if_broken(status);
  py::dict fields;
  fields["version"] = info.version;
  fields["codec"] = info.codec;
  fields["dim"] = info.dim;
  fields["count"] = info.count;
  fields["frame_bytes"] = info.frame_bytes;
  fields["header_bytes"] = info.header_bytes;
  fields["value_bytes"] = info.value_bytes;
  fields["index_bytes"] = info.index_bytes;
  const auto parts = [](const NumberBytes& numbers) {
    return py::dict(py::arg("parameters") = numbers.parameters, py::arg("classes") = numbers.classes,
                    py::arg("rests") = numbers.rests);
  };
  fields["value_numbers"] = parts(info.value_numbers);
  fields["index_numbers"] = parts(info.index_numbers);
  return fields;
}

py::list list_of(std::span<const CodecInfo> infos) {
  py::list all;
  for (const CodecInfo& info : infos) {
    all.append(py::make_tuple(std::string(info.name), std::string(info.summary), std::string(info.example)));
  }
  return all;
}

}  // namespace

void bind_codec(py::module_& module) {
  module.def("encode", &encode_vector, py::arg("vector"), py::arg("codec") = kDefaultCodec);
  module.def("encode", &encode_arrays, py::arg("indices"), py::arg("values"), py::arg("dim"),
             py::arg("codec") = kDefaultCodec, R"doc(
Writes entries as a frame (docs/reference/wire_format.md): ascending indices below ``dim``, and as many finite values.

>>> frame = encode([2, 5], [0.5, -1.0], 8, codec="golomb:values=f32")
>>> decode(frame) == SparseVector([2, 5], [0.5, -1.0], 8)
True

The codec ``seed`` needs a vector that ``Sifter.sift`` drew: ``encode(vector, codec="seed")``.
Raises UsageError.
)doc");
  module.def("decode", &decode_frame, py::arg("frame"), R"doc(
Reads a frame: any bytes give a vector or FormatError, which is a ValueError.

>>> indices, values, dim = decode(encode([2, 5], [0.5, -1.0], 8))
>>> indices.tolist(), dim
([2, 5], 8)
>>> decode(b"something else")
Traceback (most recent call last):
    ...
sparsewire.FormatError: too short: the frame is truncated
)doc");
  module.def("inspect", &inspect_frame, py::arg("frame"), R"doc(
Describes a frame.

>>> info = inspect(encode([2, 5], [0.5, -1.0], 8))
>>> info["codec"], info["dim"], info["count"], info["value_bytes"]
('bitmap:values=f32', 8, 2, 8)
)doc");
  module.def("_codecs", [] { return list_of(codecs()); });
  module.def("_value_formats", [] { return list_of(value_formats()); });
}

}  // namespace sparsewire::python
