// Continues a checksum with more bytes; `crc` and the result are before the final inversion. crc32c_extend() is defined
// in the file that CMake chooses for the processor: crc32c_x86.cc or crc32c_portable.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
// The same, as processors do it that cannot multiply long polynomials.
std::uint32_t crc32c_extend_in_parts(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
std::uint32_t crc32c_extend_by_table(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;

// A whole checksum, computed with tables, which works on every machine. Tests compare the processor's instruction with
// it.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes) noexcept;

}  // namespace sparsewire
