// The one pass over memory: accumulate, and take out what lies at or above a threshold.
//
// Magnitudes are compared as *keys*: the bit pattern of |x| as an integer. Its order is the order of magnitudes, +0 and
// -0 are the same, and every NaN and infinity lies above every finite number, so that the comparison which finds the
// large entries finds the broken ones too, for nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "sparsewire/gradient.h"

namespace sparsewire::kernels {

inline constexpr std::uint32_t kInfinityKey = 0x7F800000;  // the lowest key that is not a finite number
inline constexpr std::uint32_t kLowestKey = 1;             // the lowest key that is not zero

inline std::uint32_t key_of(float x) noexcept { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFF; }
inline float magnitude_of(std::uint32_t key) noexcept { return std::bit_cast<float>(key); }

// Squares are summed in double, entry i of a block in lane i % kLanes, so that the sum does not depend on the width of
// the vectors. (A float squared is exact in double: fused or not, the bits are the same.)
inline constexpr std::size_t kLanes = 16;

// The lanes to one number, in a fixed order.
double sum_lanes(const double* lanes) noexcept;

// A float from the number `i` of a gradient, exactly.
float number_at(const Gradient& gradient, std::size_t i) noexcept;

struct Taken {
  std::size_t count = 0;  // entries moved out
  std::size_t bad;        // flat index of the first sum that is not finite, or kNoneBad
};
inline constexpr std::size_t kNoneBad = ~std::size_t{0};

// For i in [first, first + n): a = decay*memory[i] + scale*gradient[i]; if key(a) >= threshold, appends (i, a) to
// indices and values and sets memory[i] = 0, else memory[i] = a. lanes += a*a.
//
// REQUIRES: room for n entries; kLowestKey <= threshold <= kInfinityKey; `first` starts a block, or lies a multiple of
//           kLanes behind the start of one.
// ENSURES: if a sum is not finite: nothing is taken, memory[i] is as it was, to rounding, for all i of this call, and
//          exactly where the sum is not finite; `bad` is the lowest such i. `lanes` is then worthless.
// COST: one pass; about the time of `memory += gradient`.
Taken accumulate_and_take(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, double* lanes) noexcept;

// The same without a gradient: moves the entries at or above the threshold out of a memory. Returns how many.
std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values) noexcept;

// For i in [first, first + n): all[i] = decay*memory[i] + scale*gradient[i]; the memory is only read. lanes += all*all.
// Returns the lowest i at which the sum is not finite, or kNoneBad.
std::size_t accumulate_into(const Gradient& gradient, std::size_t first, std::size_t n, const float* memory, float* all,
                            double* lanes) noexcept;

// lanes += gradient*gradient over [first, first + n), as it is: scale and decay do not count.
void sum_squares(const Gradient& gradient, std::size_t first, std::size_t n, double* lanes) noexcept;

// Takes accumulation back, to rounding: memory[i] = (memory[i] - scale*gradient[i]) / decay.
void subtract(const Gradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept;

}  // namespace sparsewire::kernels
