#include <cstring>

#include "core/clear.h"

namespace sparsewire {

void clear(std::span<std::byte> bytes) noexcept {
  if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace sparsewire
