// The parts of the module, one file each.
#pragma once

#include <pybind11/pybind11.h>

#include "made.h"

namespace sparsewire::python {

void bind_errors(pybind11::module_& module);
void bind_sparse_vector(pybind11::module_& module);
void bind_codec(pybind11::module_& module);
void bind_sparsifier(pybind11::module_& module);
void bind_sifter(pybind11::module_& module);
void bind_transport(pybind11::module_& module);
void bind_worker(pybind11::module_& module);
void bind_saved(pybind11::module_& module);

}  // namespace sparsewire::python
