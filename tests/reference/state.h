// A second implementation of saved states, from docs/reference/state_format.md: it writes what the library would not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/wire.h"

namespace sparsewire::reference {

struct StateField {
  std::string name;
  Bytes data;
  bool is_optional = false;
};

// Any fields in any order; a name may have up to 255 bytes (127 if the version is 2).
Bytes write_state(const std::vector<StateField>& fields, std::uint32_t version = 2);

// The fields of a state of version 2. REQUIRES: a valid one.
std::vector<StateField> read_state(const Bytes& state);

// The bytes of a state with correct checksums, also in the states inside it. Of other bytes only the last four change,
// as far as there are.
Bytes with_checksums(Bytes state);

}  // namespace sparsewire::reference
