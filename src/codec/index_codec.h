// Index codecs: how the indices of a frame are encoded. Each has a file and a line in index_codecs.def; the file
// <name>.cc defines estimate_<name>, encode_<name> and decode_<name>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "codec/support.h"
#include "core/buffer.h"
#include "sparsewire/codec.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

using Bytes = std::span<const std::byte>;

// How many indices are left out before index number i.
inline std::uint32_t gap_before(std::span<const std::uint32_t> indices, std::size_t i) noexcept {
  return i == 0 ? indices[0] : indices[i] - indices[i - 1] - 1;
}

// What a codec would need for some indices.
struct SizeEstimate {
  double bytes = 0;  // expected; infinity if it cannot encode them
  double least = 0;  // it may turn out to be as little as this

  SizeEstimate(double expected) : bytes(expected), least(expected) {}  // NOLINT: a number is an estimate
  SizeEstimate(double expected, double at_least) : bytes(expected), least(at_least) {}
};

// What the section of an index codec contains.
enum class IndexSection : std::uint8_t {
  other,
  draw,     // how the indices were drawn: others cannot be encoded
  numbers,  // blocks of numbers (codec/numbers.h)
};

struct IndexCodec {
  CodecInfo info;
  std::uint8_t id;
  // `auto` counts its bytes as divided by this: more than 1 for a codec that is decoded faster than the shortest one.
  double preference;
  IndexSection section;

  // About how many bytes encode() needs. Cheap: from a sample. REQUIRES: the vector is not full.
  SizeEstimate (*estimate)(const Support& support);

  // Writes the section for the indices of `vector` to the start of `out` and returns its size. Returns nothing if this
  // codec cannot encode them, or needs more than `limit` bytes. REQUIRES: `vector` is not full, and has this support.
  std::optional<std::size_t> (*encode)(const SparseVector& vector, const Support& support, std::size_t limit,
                                       Buffer<std::byte>& out);

  // Reads vector.indices.size() indices, ascending and below vector.dim; false if the section contains anything else.
  bool (*decode)(Bytes section, SparseVector& vector);
};

// All index codecs. Of those that are equally short `auto` takes the first.
std::span<const IndexCodec> index_codecs() noexcept;
// `auto` itself.
const CodecInfo& auto_codec() noexcept;

#define INDEX_CODEC(id, name, preference, section, summary, example)                                              \
  SizeEstimate estimate_##name(const Support& support);                                                           \
  std::optional<std::size_t> encode_##name(const SparseVector& vector, const Support& support, std::size_t limit, \
                                           Buffer<std::byte>& out);                                               \
  bool decode_##name(Bytes section, SparseVector& vector);
#include "codec/index_codecs.def"
#undef INDEX_CODEC

}  // namespace sparsewire
