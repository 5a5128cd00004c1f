#include "core/crc32c_extend.h"

namespace sparsewire {

std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc32c_extend_by_table(crc, bytes);
}

std::uint32_t crc32c_extend_in_parts(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc32c_extend_by_table(crc, bytes);
}

}  // namespace sparsewire
