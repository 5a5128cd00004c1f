// Whether the kernels will work, for a program that wants to know at its start.
#pragma once

namespace sparsewire {

// Throws UsageError if the environment variable SPARSEWIRE_SIMD names an instruction set that this build or this
// machine does not have. Whatever uses a kernel checks it, too.
void check_simd();

}  // namespace sparsewire
