// Every environment variable that sparsewire reads, in one place.
//
//   SPARSEWIRE_SIMD    the instruction set of the kernels: auto (default) or a name from kernels::simd_levels()
#pragma once

#include <cstdlib>
#include <string>

namespace sparsewire::environment {

// "auto" unless set.
inline std::string simd() {
  const char* value = std::getenv("SPARSEWIRE_SIMD");  // NOLINT(concurrency-mt-unsafe): nobody here calls setenv
  return value == nullptr || *value == '\0' ? "auto" : value;
}

}  // namespace sparsewire::environment
