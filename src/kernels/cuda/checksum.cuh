// CRC-32C on the device. It is linear: the checksum of each piece is multiplied by x^(8 n), where n bytes follow it,
// and these are added up.
#pragma once

#include <cstdint>

namespace sparsewire::cuda {

// Polynomials modulo that of the checksum; the highest bit is the coefficient of x^0.
inline constexpr std::uint32_t kChecksumPolynomial = 0x82F63B78;
constexpr std::uint32_t times_x(std::uint32_t a) { return a >> 1U ^ ((a & 1U) != 0 ? kChecksumPolynomial : 0); }
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int i = 0; i < 32; ++i) {
    product ^= (a & 0x80000000U) != 0 ? b : 0;
    a <<= 1U;
    b = times_x(b);
  }
  return product;
}

// x^(2^i). x^(2^31 - 1) is 1, so that exponents count modulo that.
inline constexpr unsigned kPowers = 31;
inline constexpr std::uint64_t kPowerPeriod = (std::uint64_t{1} << 31U) - 1;
struct PowersOfX {
  std::uint32_t squares[kPowers + 1] = {};
};
constexpr PowersOfX make_powers() {
  PowersOfX powers;
  powers.squares[0] = 0x40000000;  // x
  for (unsigned i = 1; i <= kPowers; ++i) powers.squares[i] = multiply(powers.squares[i - 1], powers.squares[i - 1]);
  return powers;
}
inline constexpr PowersOfX kPowersOfX = make_powers();
static_assert(kPowersOfX.squares[kPowers] == kPowersOfX.squares[0]);
constexpr std::uint32_t power_of_x(const PowersOfX& powers, std::uint64_t exponent) {
  std::uint32_t power = 0x80000000;  // 1
  exponent %= kPowerPeriod;
  for (unsigned i = 0; exponent != 0; ++i, exponent >>= 1U) {
    if ((exponent & 1U) != 0) power = multiply(power, powers.squares[i]);
  }
  return power;
}

inline constexpr unsigned kChecksumThreads = 256;
inline constexpr std::uint32_t kChecksumPiece = 256;  // bytes of a thread
inline constexpr std::uint32_t kChecksumBlock = kChecksumThreads * kChecksumPiece;
// What each thread's piece is multiplied by, for the pieces of the block that follow it: by 1, 2, 4, ... pieces.
inline constexpr unsigned kChecksumLevels = 8;
static_assert(1U << kChecksumLevels == kChecksumThreads);
struct PieceShifts {
  std::uint32_t by[kChecksumLevels] = {};
};
constexpr PieceShifts make_piece_shifts() {
  PieceShifts shifts;
  for (unsigned i = 0; i < kChecksumLevels; ++i) {
    shifts.by[i] = power_of_x(kPowersOfX, std::uint64_t{8} * kChecksumPiece << i);
  }
  return shifts;
}
inline constexpr PieceShifts kPieceShifts = make_piece_shifts();

// What this block adds to the checksum of `size` bytes, in thread 0; the sums of all blocks by XOR are the checksum
// before its final inversion. `begin_with`: that of what comes before; all ones if nothing does. REQUIRES: size >= 4;
// there are zeros behind the bytes, up to a multiple of kChecksumPiece.
__device__ inline std::uint32_t checksum_of_block(const std::uint32_t* words, std::uint64_t size,
                                                  std::uint32_t begin_with, const PowersOfX& powers,
                                                  const PieceShifts& shifts) {
  __shared__ std::uint32_t tables[4][256];  // the effect of a byte, if so many follow
  __shared__ std::uint32_t sums[kChecksumThreads];
  {
    std::uint32_t crc = threadIdx.x;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    tables[0][threadIdx.x] = crc;
    __syncthreads();
    for (int i = 1; i < 4; ++i) {
      crc = crc >> 8U ^ tables[0][crc & 0xFFU];
      tables[i][threadIdx.x] = crc;
    }
    __syncthreads();
  }
  std::uint32_t all = 0;  // of this block
  for (std::uint64_t begin = std::uint64_t{blockIdx.x} * kChecksumBlock; begin < size;
       begin += std::uint64_t{gridDim.x} * kChecksumBlock) {
    const std::uint64_t mine = begin + threadIdx.x * kChecksumPiece;
    std::uint32_t crc = 0;
    if (mine < size) {
      const auto* const fours = reinterpret_cast<const uint4*>(words + mine / 4);
      const auto add = [&](std::uint32_t word) {
        crc ^= word;
        crc = tables[3][crc & 0xFFU] ^ tables[2][crc >> 8U & 0xFFU] ^ tables[1][crc >> 16U & 0xFFU] ^
              tables[0][crc >> 24U];
      };
#pragma unroll 4
      for (unsigned i = 0; i < kChecksumPiece / 16; ++i) {
        const uint4 four = fours[i];
        add(mine == 0 && i == 0 ? four.x ^ begin_with : four.x);
        add(four.y);
        add(four.z);
        add(four.w);
      }
    }
    for (unsigned level = 0; level < kChecksumLevels; ++level) {
      sums[threadIdx.x] = crc;
      __syncthreads();
      const unsigned right = threadIdx.x + (1U << level);
      if (threadIdx.x % (2U << level) == 0) crc = multiply(crc, shifts.by[level]) ^ sums[right];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      // So many bytes follow; for the last one, fewer than none: it has zeros behind the bytes.
      const std::uint64_t end = begin + kChecksumBlock;
      const std::uint64_t shift =
          end <= size ? (size - end) * 8 % kPowerPeriod : kPowerPeriod - (end - size) * 8 % kPowerPeriod;
      all ^= multiply(crc, power_of_x(powers, shift));
    }
  }
  return all;
}

}  // namespace sparsewire::cuda
