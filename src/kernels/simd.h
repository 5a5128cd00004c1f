// Which instruction set the kernels run on: the best there is, or the one that SPARSEWIRE_SIMD names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsewire::kernels {

// The levels that this build holds and this machine can run, slowest first ("scalar", "ssse3", "sse4", "avx2", "avx3",
// ...).
std::vector<std::string> simd_levels();

// The one in use.
std::string simd_level();

// Reads SPARSEWIRE_SIMD once; call before the first kernel. Throws UsageError if it names no level of simd_levels().
void choose_simd();

// For tests: from now on `level`, or the best for "auto". Throws UsageError. THREADS: no kernel may be running.
void force_simd(std::string_view level);

}  // namespace sparsewire::kernels
