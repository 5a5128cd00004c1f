// The pass over the error memory: adds the gradient, and takes out the entries at or above a threshold.
//
// Magnitudes are compared as *keys*: the bit pattern of |x| as an integer. Keys have the order of magnitudes, +0 and -0
// have the same key, and every NaN and infinity is above every finite number. So the comparison that finds the large
// entries also finds those that are not finite, at no extra cost.
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
// the SIMD vectors. (The square of a float is exact in double, so a fused multiply-add gives the same bits.)
inline constexpr std::size_t kLanes = 16;

// Adds up the lanes in a fixed order.
double sum_lanes(const double* lanes) noexcept;

// Number `i` of a gradient as a float, exactly.
float number_at(const Gradient& gradient, std::size_t i) noexcept;

struct Taken {
  std::size_t count = 0;  // entries moved out
  std::size_t bad;        // flat index of the first sum that is not finite, or kNoneBad
};
inline constexpr std::size_t kNoneBad = ~std::size_t{0};

// For i in [first, first + n): a = decay*memory[i] + scale*gradient[i]; if key(a) >= threshold, appends (i, a) to
// indices and values and sets memory[i] = 0, else memory[i] = a. lanes += a*a.
//
// REQUIRES: room for n entries; kLowestKey <= threshold <= kInfinityKey; `first` is a multiple of kLanes after the
//           start of a block.
// ENSURES: if a sum is not finite: nothing is taken; memory[i] is as it was for all i of this call, up to rounding, and
//          exactly where the sum is not finite; `bad` is the lowest such i; `lanes` must not be used.
// COST: one pass; about the time of `memory += gradient`.
Taken accumulate_and_take(const Gradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, double* lanes) noexcept;

// The same without a gradient: moves the entries at or above the threshold out of the memory. Returns how many.
std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values) noexcept;

// For i in [first, first + n): all[i] = decay*memory[i] + scale*gradient[i]; the memory is only read. lanes += all*all.
// Returns the lowest i at which the sum is not finite, or kNoneBad.
std::size_t accumulate_into(const Gradient& gradient, std::size_t first, std::size_t n, const float* memory, float* all,
                            double* lanes) noexcept;

// lanes += gradient*gradient over [first, first + n); scale and decay are not applied.
void sum_squares(const Gradient& gradient, std::size_t first, std::size_t n, double* lanes) noexcept;

// Takes the accumulation back, up to rounding: memory[i] = (memory[i] - scale*gradient[i]) / decay.
void subtract(const Gradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept;

}  // namespace sparsewire::kernels
