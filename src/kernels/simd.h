// The instruction set of the kernels: the best that the processor supports, or the one that SPARSEWIRE_SIMD names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::kernels {

// The levels that this build contains and this machine can run, slowest first: "scalar", "ssse3", "sse4", "avx2",
// "avx3", ...
std::vector<std::string> simd_levels();

// The level in use.
std::string simd_level();

// Reads SPARSEWIRE_SIMD once, the one environment variable of the engine: auto (default) or a level; must be called
// before the first kernel. Throws UsageError if the variable names a level that is not in simd_levels().
void choose_simd();

// For tests: uses `level` from now on, or the best level for "auto". Throws UsageError if it is not in simd_levels().
// THREADS: no kernel may be running.
void force_simd(std::string_view level);

}  // namespace sparsewire::kernels
