// A code for numbers whose size varies from place to place: gaps between indices, magnitudes of values. Blocks of 32
// numbers have a parameter each, so the code follows the data. docs/reference/wire_format.md defines the bits ("Numbers
// in blocks"); this is a fast encoder and decoder.
//
// A number is a class and a rest. Classes are in one stream, in unary, and rests in another: so neither has to wait for
// the other, and a reader finds the ends of up to 64 classes in one word. Up to class `linear` a class has 2^parameter
// numbers, as in Rice's code (1979); above, each has twice as many as the one before, as in Elias' gamma code (1975).
// So a few large numbers in a block of small ones cost little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/golomb.h"

namespace sparsewire::kernels {

inline constexpr std::size_t kNumberBlock = 32;
inline constexpr std::size_t kNumberGroup = 4;  // blocks that can keep the parameter together
inline constexpr int kMostParameter = 31;
inline constexpr int kMostLinear = 63;

struct NumberCode {
  int linear = 0;           // in [0, kMostLinear]
  int least_parameter = 0;  // in [0, kMostParameter]
};

// How long the three streams become.
struct NumberPlan {
  int parameter = 0;  // of the last block; 0 before the first one
  std::uint64_t parameter_bits = 0;
  std::uint64_t class_bits = 0;
  std::uint64_t rest_bits = 0;

  std::uint64_t bits() const noexcept { return parameter_bits + class_bits + rest_bits; }
};

// Chooses the parameter of each block of `numbers` and adds the lengths to `plan`. Continues the sequence of the calls
// before; only the last call may have a number of numbers that is not a multiple of 128.
void plan_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, std::uint8_t* parameters,
                  NumberPlan& plan) noexcept;

// The three streams while they are written.
struct NumberWriter {
  BitWriter parameters;
  BitWriter classes;
  BitWriter rests;
  int parameter = 0;  // of the last block
};

// Writes numbers with the parameters that plan_numbers() chose, in the same pieces.
void write_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, const std::uint8_t* parameters,
                   NumberWriter& writer) noexcept;

// The three streams while they are read. `position` counts bits.
struct NumberReader {
  struct Stream {
    std::span<const std::byte> bytes;
    std::uint64_t position = 0;

    BitReader rest() const noexcept { return {bytes, position, bytes.size() * 8}; }
  };

  Stream parameters;
  Stream classes;
  Stream rests;
  int parameter = 0;  // of the last block

  // Whether nothing is left but the zero bits that fill the last bytes.
  bool is_finished() const noexcept;
};

// Reads the next numbers; only the last call may ask for a number of them that is not a multiple of 128. False if the
// streams contain anything else. REQUIRES: at most kMostNumbers.
inline constexpr std::size_t kMostNumbers = 1024;
bool read_numbers(const NumberCode& code, NumberReader& reader, std::span<std::uint32_t> numbers) noexcept;

// Reads indices whose gaps are the numbers. False also if one is not below `dim`.
bool read_indices(const NumberCode& code, NumberReader& reader, std::uint64_t dim,
                  std::span<std::uint32_t> indices) noexcept;

}  // namespace sparsewire::kernels
