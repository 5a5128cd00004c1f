// Index codecs: how the indices of a frame are encoded. Each has a file and a line in index_codecs.def; the file
// <name>.cc defines encode_<name> and decode_<name>.
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

  // Writes the section for the indices of `vector` to the start of `out` and returns its size. Returns nothing if this
  // codec cannot encode them, or needs more than `limit` bytes. REQUIRES: `vector` is not full.
  std::optional<std::size_t> (*encode)(const SparseVector& vector, std::size_t limit, Buffer<std::byte>& out);

  // Reads vector.indices.size() indices, ascending and below vector.dim; false if the section contains anything else.
  bool (*decode)(Bytes section, SparseVector& vector);
};

// All index codecs. `auto` tries them in this order: those that can tell at once that they would be too long come last.
std::span<const IndexCodec> index_codecs() noexcept;
// `auto` itself.
const CodecInfo& auto_codec() noexcept;

#define INDEX_CODEC(id, name, summary, example)                                                                    \
  std::optional<std::size_t> encode_##name(const SparseVector& vector, std::size_t limit, Buffer<std::byte>& out); \
  bool decode_##name(Bytes section, SparseVector& vector);
#include "codec/index_codecs.def"
#undef INDEX_CODEC

}  // namespace sparsewire
