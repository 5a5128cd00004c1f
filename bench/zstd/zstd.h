// The length of data under a general compressor, for comparison. zstd.cc where libzstd was found, no_zstd.cc elsewhere.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace sparsewire::bench {

// Bytes after compression by zstd at that level; nothing if this program was built without it.
std::optional<std::size_t> zstd_size(std::span<const std::byte> data, int level);

}  // namespace sparsewire::bench
