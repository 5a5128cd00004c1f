// Value formats: how the values of a frame are encoded. Each has a line in value_formats.def, and functions
// size_<name>, encode_<name> and decode_<name>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sparsewire/codec.h"

namespace sparsewire {

using Bytes = std::span<const std::byte>;

struct ValueFormat {
  CodecInfo info;
  std::uint8_t id;
  bool has_blocks;  // the section begins with the size of a block

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

// Whether no value is a NaN or an infinity.
bool all_finite(std::span<const float> values) noexcept;

#define VALUE_FORMAT(id, name, has_blocks, summary)                                                      \
  std::size_t size_##name(std::size_t count, std::size_t block) noexcept;                                \
  void encode_##name(std::span<const float> values, std::size_t block, std::byte* out, float* received); \
  bool decode_##name(const std::byte* section, std::size_t block, std::span<float> values);
#include "codec/value_formats.def"
#undef VALUE_FORMAT

}  // namespace sparsewire
