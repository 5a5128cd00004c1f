// What the spec of a codec says.
#pragma once

#include <cstddef>
#include <string_view>

#include "codec/index_codec.h"
#include "codec/value_format.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

struct CodecChoice {
  const IndexCodec* index_codec = nullptr;  // null: `auto`, the shortest
  const ValueFormat* value_format = nullptr;
  std::size_t block = 0;     // of values that share a scale; 0: the format has no blocks
  bool pack_sparse = false;  // values of vectors that are not full
  bool pack_full = false;
};

// Throws UsageError.
CodecChoice parse_codec(std::string_view spec);

// What encoding throws, a UsageError: if the codec cannot encode the indices of a vector, ...
[[noreturn]] void throw_not_drawn(const IndexCodec& codec);
// ... and if a value is not finite; returns if all are.
void check_finite(const SparseVector& vector);

}  // namespace sparsewire
