// The error for a gradient that must not enter the error memory. It names rank, step, tensor, entry and value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/sweep.h"
#include "sparsewire/sparsifier.h"
#include "sparsify/error_memory.h"

namespace sparsewire {

// Throws BadGradient. `who` is the name of the sparsifier. At that index the memory has the number from before the
// step.
[[noreturn]] void throw_bad_gradient(std::string_view who, const SifterContext& context, std::uint64_t step,
                                     const kernels::ScaledGradient& gradient, const ErrorMemory& memory,
                                     std::size_t index);

}  // namespace sparsewire
