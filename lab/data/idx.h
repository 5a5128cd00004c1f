// idx files, the format of MNIST: two zero bytes, the type of the numbers (8: bytes), the number of dimensions, their
// sizes as big-endian 32-bit integers, the numbers. Described by LeCun, Cortes and Burges with MNIST (1998).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/data_file.h"

namespace sparsewire::train {

struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> numbers;  // as many as the shape has
};

// Parses a file of bytes with so many dimensions (3: images, 1: labels), compressed with gzip or not, and adds its
// unpacked content to `fingerprint`. `name` is for messages. Throws UsageError if it is cut short, of another kind, or
// if something follows. COST: no more memory than its header announces, and no more than twice what it really holds.
IdxArray parse_idx(std::string_view bytes, std::string_view name, unsigned dimensions, Fingerprint& fingerprint);

}  // namespace sparsewire::train
