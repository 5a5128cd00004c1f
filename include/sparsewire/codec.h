// A SparseVector as bytes and back: frames, described in docs/wire_format.md.
//
//   Codec codec("auto:values=bf16");
//   codec.encode(sent, frame, &received);             // received: the values as the other side will see them
//   sifter.keep_rounding_loss(sent, received);        // what rounding took waits in the memory
//   ...
//   DecodeStatus status = decode(frame, vector);      // any bytes: a vector, or why not
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Why bytes are not a frame. Broken bytes are no exception: they come from outside and are expected.
enum class [[nodiscard]] DecodeStatus : std::uint8_t{
    ok,
    too_short,        // for a frame, or for the values it announces
    not_a_frame,      // another magic
    unknown_version,  // written by a later version
    bad_checksum,     // cut off or changed on its way
    unknown_codec,
    bad_header,   // a dim or count that cannot be
    bad_values,   // not finite, or codes that no encoder writes
    bad_indices,  // not ascending, outside of [0, dim), or bytes left over
};

// For a message: "the checksum does not match: the frame was cut off or changed".
std::string_view describe(DecodeStatus status) noexcept;

// Makes frames. Specs are `name:values=TYPE,block=N`:
//
//   name      how indices travel: auto (the shortest), or another of codecs()
//   values    f32 (default, lossless), f16, bf16, int8, int4, int2
//   block     values that share a scale, for int8, int4 and int2; in [16, 65536], default 256
//
// A full vector needs no indices and travels without, whatever the name; under `auto` so does one that lists all its
// entries.
//
// THREADS: one caller at a time.
class Codec {
 public:
  // Throws UsageError.
  explicit Codec(std::string_view spec);
  ~Codec();
  Codec(Codec&&) noexcept;
  Codec& operator=(Codec&&) noexcept;

  // Whether values may be rounded: all formats but f32.
  bool rounds() const noexcept;

  // Replaces `frame` by the frame of `vector`, and `received`, unless null, by the values that decode() will give.
  // Throws UsageError: a vector that is not valid, a value that is not finite, dim from 2^32 on, or `seed` for indices
  // that were not drawn (vector.draw). COST: allocates nothing in the steady state.
  void encode(const SparseVector& vector, std::vector<std::byte>& frame, std::vector<float>* received = nullptr);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The vector of a frame; a full one has no indices, so ask for vector.index(i). Unless ok, `vector` is left empty.
// Takes no more than 64 bytes of memory for each byte of the frame, whatever the bytes say; nothing in the steady
// state, but for `seed`. Throws nothing but std::bad_alloc. THREADS: any.
DecodeStatus decode(std::span<const std::byte> frame, SparseVector& vector);

// What a frame says about itself.
struct FrameInfo {
  int version = 0;
  std::string codec;  // "golomb:values=f32", as a spec; "full:values=f32" for a full vector
  std::uint64_t dim = 0;
  std::uint64_t count = 0;
  std::size_t frame_bytes = 0;   // = header + values + indices
  std::size_t header_bytes = 0;  // the checksum included
  std::size_t value_bytes = 0;   // scales included
  std::size_t index_bytes = 0;   // divisors included
};

// Decodes the whole frame, so ok means the same as for decode().
DecodeStatus inspect(std::span<const std::byte> frame, FrameInfo& info);

// log2(C(dim, count)) / count: what no code for random indices can beat, in bits for each. 0 without entries.
double entropy_bound_index_bits(std::uint64_t dim, std::uint64_t count) noexcept;

struct CodecInfo {
  std::string_view name;
  std::string_view summary;  // how indices travel, in five words
  std::string_view example;  // a spec that works
};

// Every way for indices to travel, `auto` first; and every format of values.
std::span<const CodecInfo> codecs() noexcept;
std::span<const CodecInfo> value_formats() noexcept;

}  // namespace sparsewire
