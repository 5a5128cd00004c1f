// The common part of int8, int4 and int2: the values of a block share four bytes of scale and have codes of a few bits
// each.
//
//   section = block:u32 scale* codes
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "codec/fields.h"
#include "codec/value_format.h"

namespace sparsewire {

inline constexpr std::size_t kScaleSize = 4;

inline std::size_t blocks_in(std::size_t count, std::size_t block) noexcept { return (count + block - 1) / block; }

inline std::size_t size_of_blocks(std::size_t count, std::size_t block, std::size_t bits) noexcept {
  return sizeof(std::uint32_t) + blocks_in(count, block) * kScaleSize + (count * bits + 7) / 8;
}

// Writes codes of kBits bits one after the other; the first code is in the lowest bits of a byte.
template <int kBits>
class CodeWriter {
 public:
  explicit CodeWriter(std::byte* out) noexcept : out_(out) {}

  void put(std::uint32_t code) noexcept {
    pending_ |= (code & ((1U << kBits) - 1)) << used_;
    used_ += kBits;
    if (used_ == 8) flush();
  }

  // Fills the last byte with zeros.
  void finish() noexcept {
    if (used_ > 0) flush();
  }

 private:
  void flush() noexcept {
    *out_++ = static_cast<std::byte>(pending_);
    pending_ = 0;
    used_ = 0;
  }

  std::byte* out_;
  std::uint32_t pending_ = 0;
  int used_ = 0;
};

// The code number `i`.
template <int kBits>
std::uint32_t code_at(const std::byte* codes, std::size_t i) noexcept {
  constexpr std::size_t kEach = 8 / kBits;
  return std::to_integer<std::uint32_t>(codes[i / kEach]) >> (i % kEach * kBits) & ((1U << kBits) - 1);
}

// Whether a reader accepts a scale whose largest multiple is `most` times it.
inline bool is_scale(float scale, float most) noexcept {
  return scale >= 0 && !std::signbit(scale) && std::isfinite(scale * most);
}

// Whether the unused bits of the last byte are zero.
template <int kBits>
bool ends_in_zeros(const std::byte* codes, std::size_t count) noexcept {
  constexpr std::size_t kEach = 8 / kBits;
  return count % kEach == 0 || std::to_integer<std::uint32_t>(codes[count / kEach]) >> (count % kEach * kBits) == 0;
}

}  // namespace sparsewire
