// Values that are packed without loss. What a sparsifier sends lies above a threshold, so the magnitudes differ little:
// a section of numbers holds their differences from a reference.
//
//   packed = bytes:u32 (block:u32 scale:f32*)? fold:u8 reference:u32 numbers
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "codec/numbers.h"
#include "codec/value_format.h"
#include "core/buffer.h"

namespace sparsewire {

// Packs a section of `count` values that format.encode() wrote, into `out`; returns the size. Nothing if that would not
// be shorter, or if the format cannot be packed.
std::optional<std::size_t> pack_values(const ValueFormat& format, std::size_t count, std::size_t block, Bytes plain,
                                       Buffer<std::byte>& out);

// A packed section whose parts have been found.
struct PackedValues {
  Bytes section;  // all of it
  Bytes scales;   // of formats with blocks
  std::uint8_t fold = 0;
  std::uint32_t reference = 0;
  kernels::NumberCode code;
  kernels::NumberReader numbers;
};

// Finds the parts of the section that starts at `rest`. Nothing if it is broken; if not, it has at least two bits for
// each of `count` values.
std::optional<PackedValues> parse_packed(const ValueFormat& format, std::size_t count, Bytes rest);
// The block of a packed section of a format that has blocks. REQUIRES: parse_packed() found its parts.
std::size_t block_of(const PackedValues& packed) noexcept;

// Reads values.size() values; false if the section contains anything else.
bool unpack_values(const ValueFormat& format, PackedValues packed, std::span<float> values);

}  // namespace sparsewire
