// The last step of unpacking values: from numbers to floats. docs/reference/wire_format.md, "Packed values", defines
// the numbers.
#pragma once

#include <cstdint>
#include <span>

namespace sparsewire::kernels {

// How magnitudes become numbers.
struct Fold {
  std::uint8_t fold = 0;
  std::uint32_t reference = 0;

  // Twice the distance from the reference, plus 1 for a minus. Fold 1 numbers the distances on both sides in turn.
  std::uint32_t number(std::uint32_t magnitude, std::uint32_t minus) const noexcept {
    const std::uint32_t above = magnitude - reference;
    const std::uint32_t distance = fold == 0 ? above : above << 1 ^ (0 - (above >> 31));
    return distance << 1 | minus;
  }
};

// The values whose magnitudes, as bits of the type, and signs are in `numbers`. False if one has no such bits, or is
// not finite. REQUIRES: fold.reference < 2^31.
bool unpack_f32(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept;
bool unpack_f16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept;
bool unpack_bf16(const Fold& fold, std::span<const std::uint32_t> numbers, float* values) noexcept;

// The same for integers, which are multiplied by `scale`. False if one is above `most`, or is a zero with a minus.
bool unpack_integers(std::uint32_t most, float scale, const Fold& fold, std::span<const std::uint32_t> numbers,
                     float* values) noexcept;

}  // namespace sparsewire::kernels
