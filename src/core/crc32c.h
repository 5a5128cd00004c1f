// CRC-32C (Castagnoli), the checksum of saved states and frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

// crc32c("123456789") == 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

// The same, computed with tables, which works on every machine. Tests compare the processor's instruction with it.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes) noexcept;

}  // namespace sparsewire
