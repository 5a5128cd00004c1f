// Scores of candidates beyond magnitudes: see rules.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sparsify/candidates.h"
#include "sparsify/rules.h"

namespace sparsewire {

// By magnitudes times factors, as `scores` says.
class RegularisedScore final : public Score {
 public:
  explicit RegularisedScore(const Scores& scores) : scores_(scores) {}
  void rank(const std::uint32_t* indices, const float* values, std::size_t n,
            std::uint32_t* keys) const noexcept override;

 private:
  const Scores& scores_;
};

// By a hash of the index: the smallest is the best.
class DrawnScore final : public Score {
 public:
  explicit DrawnScore(const Stream& stream) : stream_(stream) {}
  void rank(const std::uint32_t* indices, const float* values, std::size_t n,
            std::uint32_t* keys) const noexcept override;

 private:
  Stream stream_;
};

// The first entry of the last round from this index on.
inline auto first_from(std::span<const kernels::LastRound> round, std::size_t index) {
  return std::lower_bound(round.begin(), round.end(), index,
                          [](const kernels::LastRound& e, std::size_t wanted) { return e.index < wanted; });
}

}  // namespace sparsewire
