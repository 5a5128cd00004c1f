// The error for a gradient that must not enter the error memory. It names rank, step, tensor, entry and value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sparsewire/gradient.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// Throws BadGradient. `who` is the name of the sparsifier. REQUIRES: `memory` has its values from before the step.
[[noreturn]] void throw_bad_gradient(std::string_view who, const SifterContext& context, std::uint64_t step,
                                     const Gradient& gradient, std::span<const float> memory, std::size_t index);

}  // namespace sparsewire
