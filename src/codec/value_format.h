// How the values of a frame travel: one file for each format, one line in value_formats.def.
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

  // The size of the section. REQUIRES: block > 0 if it has blocks.
  std::size_t (*size)(std::size_t count, std::size_t block) noexcept;

  // Writes size() bytes, and to `received`, unless null, the values as decode() will give them; `received` may be
  // `values`. REQUIRES: finite values.
  void (*encode)(std::span<const float> values, std::size_t block, std::byte* out, float* received);

  // Reads values.size() values from size() bytes; false if one is not finite, or codes are there that no encoder
  // writes.
  bool (*decode)(const std::byte* section, std::size_t block, std::span<float> values);
};

inline constexpr std::size_t kLeastBlock = 16;
inline constexpr std::size_t kMostBlock = 65536;
inline constexpr std::size_t kDefaultBlock = 256;

std::span<const ValueFormat> value_format_table() noexcept;

// Neither NaN nor infinity.
bool all_finite(std::span<const float> values) noexcept;

#define VALUE_FORMAT(id, name, has_blocks, summary)                                                      \
  std::size_t size_##name(std::size_t count, std::size_t block) noexcept;                                \
  void encode_##name(std::span<const float> values, std::size_t block, std::byte* out, float* received); \
  bool decode_##name(const std::byte* section, std::size_t block, std::span<float> values);
#include "codec/value_formats.def"
#undef VALUE_FORMAT

}  // namespace sparsewire
