// The error for a gradient that must not enter the memory, in the words of the user: which rank, step, tensor, number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sparsewire/gradient.h"
#include "sparsewire/sparsifier.h"

namespace sparsewire {

// Throws BadGradient. `memory` is as it was before the step.
[[noreturn]] void throw_bad_gradient(std::string_view who, const SifterContext& context, std::uint64_t step,
                                     const Gradient& gradient, std::span<const float> memory, std::size_t index);

}  // namespace sparsewire
