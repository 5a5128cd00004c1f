// Counter-based random numbers: Philox4x32-10, a function of (key, counter) without state.
//
// Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011). Every device and thread gets the same numbers, and
// a receiver that knows (seed, role, rank, step) can draw the sender's numbers: so Random-k needs to send no indices.
#pragma once

#include <array>
#include <cstdint>

namespace sparsewire {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<std::uint32_t, 2> kPhiloxMultipliers{0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<std::uint32_t, 2> kPhiloxKeySteps{0x9E3779B9, 0xBB67AE85};

constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kPhiloxKeySteps[0];
    key[1] += kPhiloxKeySteps[1];
  }
  return counter;
}

// One stream of blocks: the key is the seed; the counter is (block number, step, rank, role).
class Stream {
 public:
  constexpr Stream(std::uint64_t seed, std::uint32_t role, std::uint32_t rank, std::uint64_t step) noexcept
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        step_(static_cast<std::uint32_t>(step)),
        rank_(rank),
        role_and_step_(role << 24 | (static_cast<std::uint32_t>(step >> 32) & 0xFFFFFF)) {}

  constexpr PhiloxBlock block(std::uint32_t number) const noexcept { return philox(counter(number), key_); }

  constexpr PhiloxBlock counter(std::uint32_t number) const noexcept { return {number, step_, rank_, role_and_step_}; }
  constexpr std::array<std::uint32_t, 2> key() const noexcept { return key_; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t step_;
  std::uint32_t rank_;
  std::uint32_t role_and_step_;
};

// The seed for unit number `unit` of a model: different units must draw different numbers.
constexpr std::uint64_t unit_seed(std::uint64_t seed, std::uint64_t unit) noexcept {
  return seed + unit * 0x9E3779B97F4A7C15;
}

}  // namespace sparsewire
