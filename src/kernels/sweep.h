// The pass over the error memory: adds the gradient, and takes out the entries at or above a threshold.
//
// Magnitudes are compared as *keys*: the bit pattern of |x| as an integer. Keys have the order of magnitudes, +0 and -0
// have the same key, and every NaN and infinity is above every finite number. So the comparison that finds the large
// entries also finds those that are not finite, at no extra cost.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/clip.h"
#include "kernels/norm.h"
#include "sparsewire/gradient.h"

namespace sparsewire::kernels {

struct FirstAdd;

// A gradient, and how it enters the error memory: memory <- decay*memory + scale*gradient.
struct ScaledGradient : Gradient {
  float scale = 1.0F;
  float decay = 1.0F;
  // On a device only: the numbers are those of another memory, to which this is to be added first.
  FirstAdd* first_add = nullptr;

  ScaledGradient() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a gradient as it is.
  ScaledGradient(const Gradient& gradient) noexcept : Gradient(gradient) {}
};

// A gradient that is clipped and added to a velocity, in the pass that adds the velocity to the memory.
struct FirstAdd {
  ScaledGradient gradient;
  Clip clip;
  bool is_added = false;
};

inline constexpr std::uint32_t kInfinityKey = 0x7F800000;  // the lowest key that is not a finite number
inline constexpr std::uint32_t kLowestKey = 1;             // the lowest key that is not zero

inline std::uint32_t key_of(float x) noexcept { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFF; }
inline float magnitude_of(std::uint32_t key) noexcept { return std::bit_cast<float>(key); }

// Number `i` of a gradient as a float, exactly.
float number_at(const ScaledGradient& gradient, std::size_t i) noexcept;

struct Taken {
  std::size_t count = 0;  // entries moved out
  std::size_t bad;        // flat index of the first sum that is not finite, or kNoneBad
};
inline constexpr std::size_t kNoneBad = ~std::size_t{0};

// For i in [first, first + n): a = decay*memory[i] + scale*gradient[i]; if key(a) >= threshold, appends (i, a) to
// indices and values and sets memory[i] = 0, else memory[i] = a. Adds the squares of all sums to `norm`.
//
// REQUIRES: room for n entries; kLowestKey <= threshold <= kInfinityKey.
// ENSURES: if a sum is not finite: nothing is taken; all n entries are as after make_round_trip(); `bad` is the lowest
//          index with such a sum; `norm` must not be used.
// COST: one pass; about the time of `memory += gradient`.
Taken accumulate_and_take(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory,
                          std::uint32_t threshold, std::uint32_t* indices, float* values, TileNorms& norm) noexcept;

// The same without a gradient: moves the entries at or above the threshold out of the memory. Returns how many. Adds
// the squares of all entries to `norm`. REQUIRES: the memory is finite.
std::size_t take(std::size_t first, std::size_t n, float* memory, std::uint32_t threshold, std::uint32_t* indices,
                 float* values, TileNorms& norm) noexcept;

// For i in [first, first + n): all[i] = decay*memory[i] + scale*gradient[i]; the memory is only read. Adds the squares
// to `norm`. Returns the lowest i at which the sum is not finite, or kNoneBad.
std::size_t accumulate_into(const ScaledGradient& gradient, std::size_t first, std::size_t n, const float* memory,
                            float* all, TileNorms& norm) noexcept;

// Adds gradient*gradient over [first, first + n) to `norm`; scale and decay are not applied.
void sum_squares(const ScaledGradient& gradient, std::size_t first, std::size_t n, TileNorms& norm) noexcept;

// Takes the accumulation back: memory[i] = (memory[i] - scale*gradient[i]) / decay, limited to finite numbers.
// REQUIRES: memory[i] is the finite sum.
void restore(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept;

// Accumulates and takes it back: the bits are those after accumulate_and_take() and restore(). Where the sum is not
// finite the memory stays as it is. So the memory after a failed step does not depend on how far the step had come.
void make_round_trip(const ScaledGradient& gradient, std::size_t first, std::size_t n, float* memory) noexcept;

}  // namespace sparsewire::kernels
