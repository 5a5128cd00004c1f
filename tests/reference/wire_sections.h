// The two sections of a frame.
#pragma once

#include <cstdint>

#include "reference/wire_streams.h"

namespace sparsewire::reference {

Bytes values_section(const SparseVector& vector, const Form& form);
void get_values(Reader& in, std::uint64_t count, Frame& frame);

Bytes index_section(const SparseVector& vector, const Form& form);
// Reads to the end.
void get_indices(Reader& in, std::uint64_t count, Frame& frame);

}  // namespace sparsewire::reference
