// The parts that samples are divided into.
#pragma once

#include <cstdint>

namespace sparsewire::train {

// Which samples are meant. Those of `train` alone enter gradients.
enum class Part : std::uint8_t { train, validation, test };
inline constexpr Part kParts[] = {Part::train, Part::validation, Part::test};

}  // namespace sparsewire::train
