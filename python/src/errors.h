// Exceptions on their way between C++ and Python.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>

namespace sparsewire::python {

namespace py = pybind11;

// A Python object that C++ holds. Any thread may let go of it; after the interpreter has ended nothing is done.
std::shared_ptr<PyObject> hold(py::object object);

// An exception that Python code threw where C++ called it. It goes through the library as a C++ exception and becomes
// the same Python exception again, with its traceback. It is handed over once: a worker remembers the last exception,
// and a traceback that refers to the worker would keep both alive for ever.
class PythonError : public std::runtime_error {
 public:
  // REQUIRES: the GIL is held.
  explicit PythonError(const py::error_already_set& error);

  // Sets it as the Python error. REQUIRES: the GIL is held.
  void restore() const;

 private:
  struct Held {
    std::shared_ptr<PyObject> exception;
  };
  std::shared_ptr<Held> held_;
};

// Calls Python code from C++: takes the GIL, and turns what it throws into a PythonError.
template <class Call>
auto call_python(Call call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    throw PythonError(error);
  }
}

}  // namespace sparsewire::python
