// CRC-32C (Castagnoli), the checksum of saved states and frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

// crc32c("123456789") == 0xE3069283. `before` is the checksum of what stands before these bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace sparsewire
