// SparseVector: the entries of a vector, seen by Python as two read-only arrays. It never changes, so views stay valid.
#include "sparsewire/sparse_vector.h"

#include <fmt/core.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <numeric>

#include "bind.h"
#include "numbers.h"
#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

std::shared_ptr<SparseVector> make_vector(py::handle indices, py::handle values, std::uint64_t dim) {
  auto vector = std::make_shared<SparseVector>();
  vector->dim = dim;
  vector->indices = to_indices(indices, "SparseVector");
  vector->values = to_floats(values, "SparseVector");
  if (vector->indices.size() != vector->values.size()) {
    throw UsageError(
        fmt::format("[SparseVector] {} indices for {} values", vector->indices.size(), vector->values.size()));
  }
  if (!vector->is_valid()) {
    throw UsageError(fmt::format("[SparseVector] the indices must ascend and be below dim={}", dim));
  }
  return vector;
}

// A full vector lists no indices; its caller gets them all the same.
py::array_t<std::uint32_t> indices_of(const py::object& self) {
  const auto& vector = self.cast<const SparseVector&>();
  if (!vector.is_full()) return view_of<std::uint32_t>(vector.indices, self);
  std::vector<std::uint32_t> all(vector.values.size());
  std::iota(all.begin(), all.end(), 0U);
  return to_array(std::move(all));
}

py::array_t<float> values_of(const py::object& self) {
  return view_of<float>(self.cast<const SparseVector&>().values, self);
}

}  // namespace

void bind_sparse_vector(py::module_& module) {
  py::class_<SparseVector, std::shared_ptr<SparseVector>>(module, "SparseVector", R"doc(
The entries of a vector of ``dim`` numbers that are sent: ``indices`` (uint32, ascending) and ``values`` (float32).

The arrays are read-only views; they stay valid, and keep the vector alive. It unpacks:

>>> vector = SparseVector([2, 5], [0.5, -1.0], 8)
>>> indices, values, dim = vector
>>> indices.tolist(), values.tolist(), dim
([2, 5], [0.5, -1.0], 8)
>>> len(vector)
2
)doc")
      .def(py::init(&make_vector), py::arg("indices"), py::arg("values"), py::arg("dim"))
      .def_property_readonly("indices", &indices_of)
      .def_property_readonly("values", &values_of)
      .def_readonly("dim", &SparseVector::dim)
      .def_property_readonly("is_full", &SparseVector::is_full, "Whether all entries are there.")
      .def(
          "to_dense",
          [](const SparseVector& self) {
            std::vector<float> dense(self.dim);
            for (std::size_t i = 0; i < self.size(); ++i) dense[self.index(i)] = self.values[i];
            return to_array(std::move(dense));
          },
          "All ``dim`` numbers, as a new array.")
      .def("__len__", &SparseVector::size)
      .def("__iter__",
           [](const py::object& self) {
             return py::iter(py::make_tuple(indices_of(self), values_of(self), self.attr("dim")));
           })
      .def("__eq__",
           [](const SparseVector& self, const py::object& other) -> py::object {
             if (!py::isinstance<SparseVector>(other)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
             return py::bool_(self == other.cast<const SparseVector&>());
           })
      .def("__repr__", [](const SparseVector& self) {
        return fmt::format("SparseVector({} of {} entries)", self.size(), self.dim);
      });
}

}  // namespace sparsewire::python
