// C++ exceptions become those of python/sparsewire/_errors.py.
#include "errors.h"

#include <string>
#include <utility>

#include "bind.h"
#include "sparsewire/errors.h"

namespace sparsewire::python {
namespace {

std::string describe(const py::error_already_set& error) {
  try {
    std::string text = py::str(error.type().attr("__name__"));
    const std::string message = py::str(error.value());
    return message.empty() ? text : text + ": " + message;
  } catch (const py::error_already_set&) {
    return "an exception that cannot be printed";
  }
}

// A message may quote bytes that are no UTF-8.
py::object text_of(const std::exception& error) {
  const std::string_view what = error.what();
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(what.data(), static_cast<py::ssize_t>(what.size()), "replace"));
}

template <class... Arguments>
void raise(const char* name, const std::exception& error, Arguments... arguments) {
  const py::object type = py::module_::import("sparsewire._errors").attr(name);
  const py::object exception = type(text_of(error), arguments...);
  PyErr_SetObject(type.ptr(), exception.ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const PythonError& error) {
    error.restore();
  } catch (const UsageError& error) {
    raise("UsageError", error);
  } catch (const BadGradient& error) {
    raise("BadGradient", error, error.rank(), error.step(), error.index());
  } catch (const RankFailed& error) {
    raise("RankFailed", error, error.rank());
  } catch (const ReplicasDiffer& error) {
    raise("ReplicasDiffer", error);
  } catch (const TransportError& error) {
    raise("TransportError", error, error.rank());
  }
}

}  // namespace

std::shared_ptr<PyObject> hold(py::object object) {
  return {object.release().ptr(), [](PyObject* held) {
            if (Py_IsInitialized() == 0) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(held);
          }};
}

PythonError::PythonError(const py::error_already_set& error)
    : std::runtime_error(describe(error)), held_(std::make_shared<Held>()) {
  if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
  held_->exception = hold(error.value());
}

void PythonError::restore() const {
  const std::shared_ptr<PyObject> last = std::exchange(held_->exception, nullptr);
  if (last == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, what());
    return;
  }
  PyObject* const value = last.get();
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  Py_INCREF(type);
  Py_INCREF(value);
  PyErr_Restore(type, value, PyException_GetTraceback(value));
}

void bind_errors(py::module_& module) {
  py::module_::import("sparsewire._errors");
  py::register_local_exception_translator(translate);
  static_cast<void>(module);
}

}  // namespace sparsewire::python
