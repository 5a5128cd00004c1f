// Every environment variable that the laboratory reads, in one place. (The engine reads SPARSEWIRE_SIMD.)
//
//   SPARSEWIRE_DATA    the folder of the data sets, where --data-dir does not name it
//   SPARSEWIRE_TORCH   the module with the deep networks, where it is not beside the program
//   SPARSEWIRE_GRAPHS  on (default), or off: deep networks on a GPU launch their kernels one by one, without CUDA
//                      graphs; for tests
//   SPARSEWIRE_SIFT    device (default), or host: trainings on a GPU sift on the host; for tests, and where the GPU has
//                      too little memory
//   OMPI_COMM_WORLD_SIZE, PMI_SIZE    the number of processes that mpirun started (Open MPI, MPICH): shows whether
//                                     --transport mpi was forgotten
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "sparsewire/errors.h"

namespace sparsewire::environment {

// Empty unless set.
inline std::string data() {
  const char* value = std::getenv("SPARSEWIRE_DATA");  // NOLINT(concurrency-mt-unsafe): sparsewire never calls setenv
  return value == nullptr ? "" : value;
}

// Empty unless set.
inline std::string torch_module() {
  const char* value = std::getenv("SPARSEWIRE_TORCH");  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

// Whether the variable, which has two values, is the second one; unless set it is the first. Throws UsageError.
inline bool is_second(const char* name, const char* first, const char* second) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == '\0' || std::string_view(value) == first) return false;
  if (std::string_view(value) == second) return true;
  throw UsageError(std::string(name) + "=" + value + " is not one of " + first + ", " + second);
}

inline bool uses_graphs() { return !is_second("SPARSEWIRE_GRAPHS", "on", "off"); }
inline bool sifts_on_host() { return is_second("SPARSEWIRE_SIFT", "device", "host"); }

// The number of processes of this job if mpirun started it, else 1.
inline int processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr) return std::atoi(value);
  }
  return 1;
}

}  // namespace sparsewire::environment
