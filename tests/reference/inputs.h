// Gradients that are difficult for a selection: ties, signed zeros, denormals, very large numbers, sorted numbers, and
// lengths around every vector width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sparsewire::reference {

using Numbers = std::vector<float>;

// A random generator with the same numbers for the same seed on every machine.
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
  // The gradient of step `step`; the sum of several steps is finite.
  Numbers (*make)(std::size_t n, int step, std::uint64_t seed);
};

// Every kind of input.
const std::vector<Input>& catalogue();
// The input of that name.
const Input& input(const std::string& name);

// The gradients of steps 0 .. steps - 1.
std::vector<Numbers> sequence(const Input& input, std::size_t n, int steps, std::uint64_t seed);

// Lengths around every vector width and piece size.
std::vector<std::size_t> small_lengths();  // up to 1025
std::vector<std::size_t> large_lengths();  // 4099 to 65537
constexpr std::size_t kOddLarge = 200003;

// Multiples of 1/64 up to 8 in magnitude, at some entries integers up to 512: hundreds of them add without rounding.
Numbers exact_numbers(std::size_t n, int step, std::uint64_t seed);

// A drifting part plus noise, with a different scale for each entry: similar to the gradients of training.
Numbers drifting(std::size_t n, int step, std::uint64_t seed);

// Every finite 16-bit pattern of a format with that many exponent bits, in a shuffled order, then `extra` zeros.
// Odd steps have the opposite signs, so that the sum of two steps is finite.
std::vector<std::uint16_t> every_finite_half(int exponent_bits, std::size_t extra, int step, std::uint64_t seed);

}  // namespace sparsewire::reference
