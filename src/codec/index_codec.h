// How the indices of a frame travel: one file for each way, one line in index_codecs.def.
//
// In the file of the name stand encode_<name> and decode_<name>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/buffer.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

using Bytes = std::span<const std::byte>;

struct IndexCodec {
  CodecInfo info;
  std::uint8_t id;

  // Writes the section for the indices of `vector` to the begin of `out` and returns its size; nothing if they cannot
  // travel this way, or not in `limit` bytes. REQUIRES: not full.
  std::optional<std::size_t> (*encode)(const SparseVector& vector, std::size_t limit, Buffer<std::byte>& out);

  // Reads vector.indices.size() indices below vector.dim, ascending; false if the section holds anything else.
  bool (*decode)(Bytes section, SparseVector& vector);
};

// All of them. `auto` tries them in this order: those that know at once that they are too long come last.
std::span<const IndexCodec> index_codecs() noexcept;

#define INDEX_CODEC(id, name, summary, example)                                                                    \
  std::optional<std::size_t> encode_##name(const SparseVector& vector, std::size_t limit, Buffer<std::byte>& out); \
  bool decode_##name(Bytes section, SparseVector& vector);
#include "codec/index_codecs.def"
#undef INDEX_CODEC

}  // namespace sparsewire
