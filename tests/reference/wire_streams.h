// Numbers and bits of a frame, written and read one by one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/wire.h"

namespace sparsewire::reference {

// Thrown where a reader must refuse the bytes.
struct Refused {};

inline void require(bool good) {
  if (!good) throw Refused();
}

inline std::uint64_t up(std::uint64_t x, std::uint64_t y) { return x / y + (x % y != 0 ? 1 : 0); }

class Writer {
 public:
  void bytes(const Bytes& more) { out_.insert(out_.end(), more.begin(), more.end()); }
  void number(std::uint64_t x, int size) {
    for (int i = 0; i < size; ++i) out_.push_back(static_cast<std::byte>((x >> (8 * i)) & 0xFFU));
  }
  void u8(std::uint64_t x) { number(x, 1); }
  void u16(std::uint64_t x) { number(x, 2); }
  void u32(std::uint64_t x) { number(x, 4); }
  void u64(std::uint64_t x) { number(x, 8); }
  void f32(float x) { u32(std::bit_cast<std::uint32_t>(x)); }
  Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::span<const std::byte> bytes(std::uint64_t size) {
    require(size <= left_.size());
    const auto taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  std::uint64_t number(int size) {
    std::uint64_t x = 0;
    int shift = 0;
    for (const std::byte byte : bytes(static_cast<std::uint64_t>(size))) {
      x |= std::to_integer<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return x;
  }
  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  float f32() { return std::bit_cast<float>(u32()); }
  std::size_t left() const { return left_.size(); }
  std::span<const std::byte> rest() { return bytes(left_.size()); }

 private:
  std::span<const std::byte> left_;
};

class BitWriter {
 public:
  void bit(bool one) { bits_.push_back(one); }
  void number(std::uint64_t x, int bits) {
    for (int i = 0; i < bits; ++i) bit(((x >> i) & 1U) != 0);
  }
  Bytes take() const {
    Bytes out(up(bits_.size(), 8));
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (bits_[i]) out[i / 8] |= static_cast<std::byte>(1U << (i % 8));
    }
    return out;
  }

 private:
  std::vector<bool> bits_;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool bit() {
    require(next_ < bytes_.size() * 8);
    const bool one = ((std::to_integer<unsigned>(bytes_[next_ / 8]) >> (next_ % 8)) & 1U) != 0;
    ++next_;
    return one;
  }
  std::uint64_t number(int bits) {
    std::uint64_t x = 0;
    for (int i = 0; i < bits; ++i) x |= static_cast<std::uint64_t>(bit() ? 1 : 0) << i;
    return x;
  }
  // Only zero bits up to the next byte may follow.
  void end() {
    require(bytes_.size() == up(next_, 8));
    while (next_ < bytes_.size() * 8) require(!bit());
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
};

}  // namespace sparsewire::reference
