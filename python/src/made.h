// Objects whose constructor never ran, such as Sifter.__new__(Sifter), are refused where they are used: pybind11 would
// take memory that nobody has written for the object.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::python {

// For a class that Python knows: template <> class type_caster<X> : public MadeCaster<X> {}.
template <class T>
class MadeCaster : public pybind11::detail::type_caster_base<T> {
 public:
  // Throws TypeError if the object has not been made.
  bool load(pybind11::handle object, bool convert) {
    const auto* const type = pybind11::detail::get_type_info(typeid(T));
    if (type != nullptr && PyObject_TypeCheck(object.ptr(), type->type) != 0) {
      auto* const instance = reinterpret_cast<pybind11::detail::instance*>(object.ptr());
      if (!instance->get_value_and_holder(type).holder_constructed()) {
        throw pybind11::type_error(std::string("[") + Py_TYPE(object.ptr())->tp_name +
                                   "] its __init__() was not called");
      }
    }
    return pybind11::detail::type_caster_base<T>::load(object, convert);
  }
};

}  // namespace sparsewire::python

namespace pybind11::detail {

template <>
class type_caster<sparsewire::SparseVector> : public sparsewire::python::MadeCaster<sparsewire::SparseVector> {};

}  // namespace pybind11::detail
