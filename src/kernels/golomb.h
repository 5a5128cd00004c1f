// Golomb code for gaps: a quotient in unary, a remainder in truncated binary, any divisor.
// docs/reference/wire_format.md defines the bits; this is a fast encoder and decoder.
//
// Golomb, Run-length encodings, 1966; Gallager and Van Voorhis, 1975: optimal for the gaps of random supports.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sparsewire::kernels {

static_assert(std::endian::native == std::endian::little);

// The divisor and the numbers derived from it.
class GolombCode {
 public:
  static constexpr std::uint32_t kMostDivisor = std::uint32_t{1} << 30;  // of the encoder; the decoder accepts any

  // REQUIRES: divisor > 0.
  explicit GolombCode(std::uint32_t divisor) noexcept
      : divisor_(divisor),
        bits_(divisor == 1 ? 1 : static_cast<int>(std::bit_width(divisor - 1))),
        shorter_(static_cast<std::uint32_t>((std::uint64_t{1} << bits_) - divisor)),
        inverse_((std::uint64_t{1} << 63) / divisor + 1) {}

  std::uint32_t divisor() const noexcept { return divisor_; }
  // The length of the longer remainders.
  int bits() const noexcept { return bits_; }
  // Remainders below this are one bit shorter.
  std::uint32_t shorter() const noexcept { return shorter_; }

  // gap / divisor. REQUIRES: divisor <= kMostDivisor.
  std::uint32_t quotient(std::uint32_t gap) const noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint32_t>(static_cast<Wide>(inverse_) * gap >> 63);
  }

 private:
  std::uint32_t divisor_;
  int bits_;
  std::uint32_t shorter_;
  std::uint64_t inverse_;
};

// Writes a bit stream, least significant bit of each byte first. REQUIRES: room for 8 bytes more than the bits take.
class BitWriter {
 public:
  static constexpr int kMost = 56;  // bits that put() may write at a time

  explicit BitWriter(std::byte* out) noexcept : at_(out) {}

  void put(std::uint64_t bits, int count) noexcept {
    pending_ |= bits << used_;
    used_ += static_cast<unsigned>(count);
    std::memcpy(at_, &pending_, 8);
    at_ += used_ / 8;
    pending_ >>= used_ & 56;
    used_ %= 8;
  }

  void put(const GolombCode& code, std::uint32_t gap) noexcept {
    std::uint32_t quotient = code.quotient(gap);
    const std::uint32_t remainder = gap - quotient * code.divisor();
    const std::uint64_t longer =
        remainder >= code.shorter() ? 1 : 0;  // no branch: it would be mispredicted half the time
    const std::uint64_t sum = std::uint64_t{remainder} + (code.shorter() & (0 - longer));
    const int bits = code.bits();
    const std::uint64_t binary = sum >> longer | (sum & longer) << (bits - 1);
    if (quotient > kMostUnary) [[unlikely]] {
      quotient = put_zeros(quotient);
    }
    put((binary << 1 | 1) << quotient, static_cast<int>(quotient) + bits + static_cast<int>(longer));
  }

  // One past the last byte, whose unused bits are zero.
  std::byte* end() const noexcept { return at_ + (used_ > 0 ? 1 : 0); }

 private:
  static constexpr std::uint32_t kMostUnary = kMost - 33;  // so that a remainder of 32 bits and the 1 fit as well

  // Writes zeros until at most kMostUnary of the `count` are left; returns how many are left.
  std::uint32_t put_zeros(std::uint32_t count) noexcept {
    for (; count > kMostUnary; count -= kMostUnary) put(0, kMostUnary);
    return count;
  }

  std::byte* at_;
  std::uint64_t pending_ = 0;
  std::uint64_t used_ = 0;  // bits of it
};

// Reads a bit stream, never past its end.
class BitReader {
 public:
  // The bits from `position` up to `end` of `bytes`.
  BitReader(std::span<const std::byte> bytes, std::uint64_t position, std::uint64_t end) noexcept
      : bytes_(bytes), position_(position), end_(end) {}
  explicit BitReader(std::span<const std::byte> bytes) noexcept : BitReader(bytes, 0, bytes.size() * 8) {}

  std::uint64_t position() const noexcept { return position_; }

  // Reads the next gap; false if the stream ends before the code does, or if the gap is above `most`.
  bool get(const GolombCode& code, std::uint64_t most, std::uint64_t& gap) noexcept {
    std::uint64_t quotient = 0;
    std::uint64_t window = peek();
    while (window == 0) {
      position_ += kPeekBits;
      quotient += kPeekBits;
      if (position_ >= end_) return false;
      window = peek();
    }
    const int zeros = std::countr_zero(window);
    quotient += static_cast<std::uint64_t>(zeros);
    position_ += static_cast<std::uint64_t>(zeros) + 1;
    if (quotient > most / code.divisor()) return false;
    window = peek();
    const int bits = code.bits();
    std::uint64_t remainder = window & ((std::uint64_t{1} << (bits - 1)) - 1);
    const bool longer = remainder >= code.shorter();
    if (longer) remainder = (remainder << 1 | (window >> (bits - 1) & 1)) - code.shorter();
    position_ += static_cast<std::uint64_t>(bits - 1) + (longer ? 1U : 0U);
    gap = quotient * code.divisor() + remainder;
    return position_ <= end_ && gap <= most;
  }

  // Whether nothing is left but the zero bits that fill the last byte.
  bool is_finished() const noexcept { return position_ <= end_ && end_ - position_ < 8 && peek() == 0; }

 private:
  static constexpr std::uint64_t kPeekBits = 57;  // what peek() always returns, except at the end

  // The bits from the current position on; zeros after the end.
  std::uint64_t peek() const noexcept {
    if (position_ >= end_) return 0;
    const std::size_t first = position_ / 8;
    const std::size_t last = (end_ + 7) / 8;
    std::uint64_t window = 0;
    if (last - first >= 8) {
      std::memcpy(&window, bytes_.data() + first, 8);
    } else {
      std::memcpy(&window, bytes_.data() + first, last - first);
    }
    return window >> position_ % 8;
  }

  std::span<const std::byte> bytes_;
  std::uint64_t position_;
  std::uint64_t end_;
};

inline constexpr std::size_t kGolombLanes = 4;

// Writes the gaps before the indices number first, first + step, first + 2*step, ...; returns the end of what it wrote.
// REQUIRES: room as for a BitWriter.
std::byte* golomb_encode(const GolombCode& code, std::span<const std::uint32_t> indices, std::size_t first,
                         std::size_t step, std::byte* out) noexcept;

// Reads `count` indices below `dim`. Their gaps are distributed over four streams (gap i is in stream i % 4), which
// start at the bytes begins[0..3] of `bytes`; begins[4] is the end. False if the streams contain anything else.
bool golomb_decode(const GolombCode& code, std::span<const std::byte> bytes,
                   const std::array<std::size_t, kGolombLanes + 1>& begins, std::uint64_t dim, std::size_t count,
                   std::uint32_t* indices) noexcept;

// A gap of a sample. Larger ones are cut: it is not necessary to tell them apart.
inline float golomb_sample(std::uint32_t gap) noexcept { return std::min(static_cast<float>(gap), 0x1p30F); }
// The total length in bits of the codes of a sample of gaps. Approximate, as it is computed in float: to compare
// divisors.
std::uint64_t golomb_cost(const GolombCode& code, std::span<const float> gaps) noexcept;

}  // namespace sparsewire::kernels
