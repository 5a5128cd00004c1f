#include "zstd/zstd.h"

#include <zstd.h>

#include <stdexcept>
#include <vector>

namespace sparsewire::bench {

std::optional<std::size_t> zstd_size(std::span<const std::byte> data, int level) {
  std::vector<std::byte> out(ZSTD_compressBound(data.size()));
  const std::size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), level);
  if (ZSTD_isError(size) != 0) throw std::runtime_error(ZSTD_getErrorName(size));
  return size;
}

}  // namespace sparsewire::bench
