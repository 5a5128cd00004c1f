// The two codes for numbers in a frame: Golomb code, and numbers in blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/wire_streams.h"

namespace sparsewire::reference {

void put_golomb(BitWriter& out, std::uint64_t x, std::uint64_t divisor);
std::uint64_t get_golomb(BitReader& in, std::uint64_t divisor);

void put_numbers(Writer& out, const std::vector<std::uint64_t>& numbers, const Form& form);
std::vector<std::uint64_t> get_numbers(Reader& in, std::uint64_t count, int least, Form& form);

}  // namespace sparsewire::reference
