// What an encoder does with every entry before it writes: checks, counts, and the numbers that are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/unpack.h"

namespace sparsewire::kernels {

// Whether each index is above the one before it.
bool are_ascending(std::span<const std::uint32_t> indices) noexcept;

// Runs of consecutive indices.
std::size_t count_runs(std::span<const std::uint32_t> indices) noexcept;

// gaps[i]: how many indices are left out before indices[i], of which indices[i - 1] must be there, too.
void find_gaps(const std::uint32_t* indices, std::span<std::uint32_t> gaps) noexcept;

// Whether no value is a NaN or an infinity.
bool all_finite(std::span<const float> values) noexcept;

// The next two are for codes of 32 or 16 bits, of which the highest is the sign; they may begin at any byte.
enum class FloatCodes : std::uint8_t { of_32_bits, of_16_bits };

// The smallest and the largest magnitude.
struct MagnitudeRange {
  std::uint32_t least = 0xFFFFFFFF;
  std::uint32_t most = 0;
};
MagnitudeRange range_of(FloatCodes type, const std::byte* codes, std::size_t count) noexcept;

// Their numbers.
void fold_codes(FloatCodes type, const Fold& fold, const std::byte* codes, std::span<std::uint32_t> numbers) noexcept;

}  // namespace sparsewire::kernels
