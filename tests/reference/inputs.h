// Gradients that are hard on a selection: ties, signed zeros, denormals, extremes, order, and every awkward length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sparsewire::reference {

using Numbers = std::vector<float>;

// The same numbers for the same seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  double uniform() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }  // [0, 1)
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(uniform() * static_cast<double>(n)); }
  double normal();

 private:
  std::mt19937_64 engine_;
};

struct Input {
  std::string name;
  // The gradient of step `step`; several steps added up stay finite.
  Numbers (*make)(std::size_t n, int step, std::uint64_t seed);
};

// Every kind there is.
const std::vector<Input>& catalogue();
// One of them by name.
const Input& input(const std::string& name);

// The gradients of steps 0 .. steps - 1.
std::vector<Numbers> sequence(const Input& input, std::size_t n, int steps, std::uint64_t seed);

// Around every vector width and piece size.
std::vector<std::size_t> small_lengths();  // up to 1025
std::vector<std::size_t> large_lengths();  // 4099 to 65537
constexpr std::size_t kOddLarge = 200003;

// Multiples of 1/64 up to 8 in magnitude, up to 512 at some entries: hundreds of them add without rounding.
Numbers exact_numbers(std::size_t n, int step, std::uint64_t seed);

// A drifting part plus noise, scales spread over the entries: what training looks like.
Numbers drifting(std::size_t n, int step, std::uint64_t seed);

// Every finite 16-bit pattern of a format with that many exponent bits, in a shuffled order, then `extra` zeros.
// Odd steps hold the negatives, so that two steps add up to a finite number.
std::vector<std::uint16_t> every_finite_half(int exponent_bits, std::size_t extra, int step, std::uint64_t seed);

}  // namespace sparsewire::reference
