// Value formats: how the values of a frame are encoded. Each has a line in value_formats.def, and functions
// size_<name>, encode_<name> and decode_<name>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/entries.h"
#include "sparsewire/codec.h"

namespace sparsewire {

using Bytes = std::span<const std::byte>;

// As what a transport's all-reduce can add values of a format.
enum class ReducedAs : std::uint8_t { nothing, f32, bf16 };

// What a code of a format is, for packing without loss: a float, as sign and magnitude, or an integer in two's
// complement.
enum class Packing : std::uint8_t { none, f32, f16, bf16, integers };

struct ValueFormat {
  CodecInfo info;  // the example is a codec with this format
  std::uint8_t id;
  double bits;      // of a value, without the scale of its block
  bool has_blocks;  // the section begins with the size of a block
  bool rounds;      // decode() may return other values than encode() got
  ReducedAs reduced_as;
  Packing packing;

  // The size of the section in bytes. REQUIRES: block > 0 if the format has blocks.
  std::size_t (*size)(std::size_t count, std::size_t block) noexcept;

  // Writes size() bytes to `out` and, unless null, to `received` the values as decode() will return them. `received`
  // may be the same array as `values`. REQUIRES: finite values.
  void (*encode)(std::span<const float> values, std::size_t block, std::byte* out, float* received);

  // Reads values.size() values from size() bytes; false if a value is not finite, or has a code that no encoder writes.
  bool (*decode)(const std::byte* section, std::size_t block, std::span<float> values);
};

inline constexpr std::size_t kLeastBlock = 16;
inline constexpr std::size_t kMostBlock = 65536;
inline constexpr std::size_t kDefaultBlock = 256;

std::span<const ValueFormat> value_format_table() noexcept;

// The format that the spec of a codec names, or the default. Throws UsageError.
const ValueFormat& value_format_of(std::string_view codec);

// About how many bits a value takes in the frames of a codec: in those that hold some of the entries, where packing
// makes values shorter, and in those that hold all.
struct ValueBits {
  double of_some = 0;
  double of_all = 0;
};
ValueBits expected_value_bits(std::string_view codec);

// The narrowest format that an all-reduce can add, with no fewer bits than `format` if there is one.
const ValueFormat& reducible_format(const ValueFormat& format) noexcept;
// A format that rounds nothing.
const ValueFormat& exact_format() noexcept;

using kernels::all_finite;

#define VALUE_FORMAT(id, name, bits, has_blocks, rounds, reduced_as, packing, summary)                   \
  std::size_t size_##name(std::size_t count, std::size_t block) noexcept;                                \
  void encode_##name(std::span<const float> values, std::size_t block, std::byte* out, float* received); \
  bool decode_##name(const std::byte* section, std::size_t block, std::span<float> values);
#include "codec/value_formats.def"
#undef VALUE_FORMAT

}  // namespace sparsewire
