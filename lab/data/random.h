// Random numbers for problems: a function of (seed, use, worker, step), like all random numbers in sparsewire.
#pragma once

#include <cmath>
#include <cstdint>

#include "sparsewire/support/philox.h"
#include "sparsewire/support/portable_math.h"

namespace sparsewire::train {

// What the numbers are used for: different uses have different streams. Sparsifiers use 0 and 1 (Role).
enum class Use : std::uint32_t {
  weights = 16,
  data = 17,
  batch = 18,
  noise = 19,
  validation = 20,
  split = 21,
  pass = 22,
  augment = 23,
  dropout = 24,
  window = 25
};

class Draws {
 public:
  Draws(std::uint64_t seed, Use use, int worker = 0, std::uint64_t step = 0) noexcept
      : stream_(seed, static_cast<std::uint32_t>(use), static_cast<std::uint32_t>(worker), step) {}

  std::uint32_t word() noexcept {
    if (used_ == 4) {
      block_ = stream_.block(next_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  // In [0, 1), 53 bits.
  double uniform() noexcept {
    const std::uint64_t high = word() >> 5;
    const std::uint64_t low = word() >> 6;
    return static_cast<double>(high << 26 | low) * 0x1p-53;
  }
  // One of 0 ... n-1, uniform to 2^-32. REQUIRES: 1 <= n < 2^32.
  std::uint32_t below(std::uint32_t n) noexcept { return static_cast<std::uint32_t>(std::uint64_t{word()} * n >> 32); }
  // N(0, 1), by Box and Muller (1958).
  double normal() noexcept {
    const double radius = std::sqrt(-2 * portable_log(1 - uniform()));
    return radius * portable_cos_of_turns(uniform());
  }

 private:
  Stream stream_;
  PhiloxBlock block_{};
  std::uint32_t next_ = 0;
  unsigned used_ = 4;
};

}  // namespace sparsewire::train
