// Turns a SparseVector into bytes (a frame) and back. docs/reference/wire_format.md describes the format.
//
//   Codec codec("auto:values=bf16");
//   codec.encode(sent, frame, &received);             // received: the values as the other side will decode them
//   sifter.keep_rounding_loss(sent, received);        // the rounding error goes back into the error memory
//   ...
//   DecodeStatus status = decode(frame, vector);      // any bytes: a vector, or the reason why not
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Why bytes are not a valid frame. Broken bytes are reported as a status, not thrown: they come from outside and must
// be expected.
enum class [[nodiscard]] DecodeStatus : std::uint8_t{
    ok,
    too_short,        // for a frame, or for the values that the header announces
    not_a_frame,      // the first four bytes are not the magic number
    unknown_version,  // written by a later version
    bad_checksum,     // truncated, or changed in transit
    unknown_codec,
    bad_header,   // an impossible dim or count
    bad_values,   // not finite, or codes that no encoder writes
    bad_indices,  // not ascending, outside [0, dim), or bytes left over
};

// The status as text for an error message: "the checksum does not match: the frame was truncated or changed".
std::string_view describe(DecodeStatus status) noexcept;

// Encodes frames. Specs are `name:values=TYPE,block=N,pack=yes`:
//
//   name      how indices are encoded: auto (the shortest encoding), or another name from codecs()
//   values    f32 (default, lossless), f16, bf16, int8, int4, int2
//   block     how many values share a scale, for int8, int4 and int2; in [16, 65536], default 256
//   pack      sparse: values are packed without loss where that is shorter, except int2 and those of full vectors; yes:
//             those of full vectors too; no: they are sent as they are. The default is sparse for auto, no for other
//             names. Versions before 0.6.0 read neither packed values nor `adaptive`
//
// A full vector needs no indices and is sent without them, whatever the name. Under `auto`, a vector that lists all its
// entries is also sent without indices.
//
// THREADS: one caller at a time.
class Codec {
 public:
  // Throws UsageError.
  explicit Codec(std::string_view spec);
  ~Codec();
  Codec(Codec&&) noexcept;
  Codec& operator=(Codec&&) noexcept;

  // Whether values may be rounded: true for every format except f32.
  bool rounds() const noexcept;

  // Replaces `frame` by the frame of `vector`, and `received`, unless null, by the values that decode() will return.
  // Throws UsageError if the vector is not valid, a value is not finite, dim is 2^32 or more, or the codec is `seed`
  // and the indices were not drawn from a seed (vector.draw). With a pool, two of its threads encode a long vector: one
  // the indices, one the values. COST: allocates nothing in the steady state.
  void encode(const SparseVector& vector, std::vector<std::byte>& frame, std::vector<float>* received = nullptr,
              Pool* pool = nullptr);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Decodes a frame. A full vector has no indices: use vector.index(i). If the status is not ok, `vector` is left empty.
// COST: allocates at most 64 bytes for each byte of the frame, whatever the bytes say; in the steady state nothing.
// Throws only std::bad_alloc. With a pool, two of its threads decode a long frame. THREADS: any, each with
// a pool of its own.
DecodeStatus decode(std::span<const std::byte> frame, SparseVector& vector, Pool* pool = nullptr);

// The parts of a section of numbers in blocks, in bytes (docs/reference/wire_format.md). All 0 for other sections.
struct NumberBytes {
  std::size_t parameters = 0;
  std::size_t classes = 0;
  std::size_t rests = 0;
};

// A description of a frame, from its header and its sections.
struct FrameInfo {
  int version = 0;
  std::string codec;  // "golomb:values=f32", as a spec; "full:values=f32" for a full vector
  std::uint64_t dim = 0;
  std::uint64_t count = 0;
  std::size_t frame_bytes = 0;   // = header + values + indices
  std::size_t header_bytes = 0;  // including the checksum
  std::size_t value_bytes = 0;   // including the scales
  std::size_t index_bytes = 0;   // including the divisors
  NumberBytes value_numbers;     // of packed values: where their bits go
  NumberBytes index_numbers;     // of `adaptive` indices
};

// Describes a frame. Decodes all of it, so ok means the same as for decode().
DecodeStatus inspect(std::span<const std::byte> frame, FrameInfo& info);

// log2(C(dim, count)) / count: the lower bound, in bits per index, for any code of random indices. 0 if count is 0.
double entropy_bound_index_bits(std::uint64_t dim, std::uint64_t count) noexcept;

struct CodecInfo {
  std::string_view name;
  std::string_view summary;  // what it does, in about five words
  std::string_view example;  // a spec that works
};

// Every index codec, `auto` first; and every value format.
std::span<const CodecInfo> codecs() noexcept;
std::span<const CodecInfo> value_formats() noexcept;

}  // namespace sparsewire
