// Which of many numbers a sample takes: stretches of 32 neighbours, so that it shows how they come in clusters.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sparsewire::kernels {

class Stretches {
 public:
  // Of `count` numbers about `most`; all of them if they are no more.
  constexpr Stretches(std::size_t count, std::size_t most) noexcept
      : count_(count), stretches_(count <= most / kLength * kLength ? 0 : most / kLength) {}

  // Calls f(i) for each number i of the sample.
  template <class F>
  constexpr void for_each(F&& f) const {
    for (std::size_t i = 0; stretches_ == 0 && i < count_; ++i) f(i);
    for (std::size_t s = 0; s < stretches_; ++s) {
      const std::size_t begin = (count_ - kLength) * s / (stretches_ - 1);
      for (std::size_t i = begin; i < begin + kLength; ++i) f(i);
    }
  }

 private:
  static constexpr std::size_t kLength = 32;

  std::size_t count_;
  std::size_t stretches_;  // 0: all
};

// The samples of gaps that index codecs look at: for their length, and for the divisor of Golomb's code.
inline constexpr std::size_t kMostNumberSample = 4096;
inline constexpr std::size_t kMostDivisorSample = 16384;
constexpr Stretches number_sample(std::size_t count) noexcept {
  return {count, std::clamp<std::size_t>(count / 16, 1024, kMostNumberSample)};
}
constexpr Stretches divisor_sample(std::size_t count) noexcept {
  return {count, std::clamp<std::size_t>(count / 64, 2048, kMostDivisorSample)};
}

}  // namespace sparsewire::kernels
