// Many Philox blocks at a time, with the same bits as sparsewire/support/philox.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsewire/support/philox.h"

namespace sparsewire::kernels {

// The draws number `first` to `first + count - 1` of the stream, each converted to a position in [0, n): the high half
// of the 64-bit draw times n. Draw 2b is (word 1, word 0) of block b, draw 2b + 1 is (word 3, word 2). REQUIRES: n <
// 2^32.
void draw_positions(const Stream& stream, std::uint64_t first, std::size_t count, std::size_t n,
                    std::uint32_t* positions) noexcept;

// hashes[i] = word 0 of block number numbers[i].
void hash(const Stream& stream, const std::uint32_t* numbers, std::size_t count, std::uint32_t* hashes) noexcept;

}  // namespace sparsewire::kernels
