// The extension module sparsewire._core. What users import is python/sparsewire/__init__.py.
#include <pybind11/pybind11.h>

#include "bind.h"

PYBIND11_MODULE(_core, module) {
  namespace ours = sparsewire::python;
  module.doc() = "The C++ part of sparsewire; import sparsewire instead.";
  module.attr("__version__") = SPARSEWIRE_VERSION;
  ours::bind_errors(module);
  ours::bind_sparse_vector(module);
  ours::bind_codec(module);
  ours::bind_sparsifier(module);
  ours::bind_sifter(module);
  ours::bind_transport(module);
  ours::bind_worker(module);
  ours::bind_saved(module);
}
