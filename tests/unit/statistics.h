// Tests whether draws are uniform. The bounds are loose enough that a right draw with a fixed seed passes, and tight
// enough to show a bias.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire {

// Counts how often each entry, and each pair of neighbouring entries, is in a draw. All draws must have the same size.
class Inclusion {
 public:
  explicit Inclusion(std::size_t entries) : single_(entries), pair_(entries) {}

  // Adds one draw: the entries in it.
  void add(const std::vector<std::size_t>& drawn) {
    std::vector<bool> in(single_.size());
    for (const std::size_t i : drawn) in.at(i) = true;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i]) continue;
      ++single_[i];
      if (in[(i + 1) % in.size()]) ++pair_[i];
    }
    ++draws_;
    taken_ = static_cast<double>(drawn.size());
  }

  // How far the chi-square statistic of the counts is from that of uniform draws, in standard deviations.
  double unevenness() const { return chi_square(single_, taken_ / entries()); }
  // The same for pairs. Pairs are not independent, so its deviation is about twice as large.
  double unevenness_of_pairs() const { return chi_square(pair_, taken_ / entries() * (taken_ - 1) / (entries() - 1)); }

 private:
  double entries() const { return static_cast<double>(single_.size()); }

  double chi_square(const std::vector<std::uint64_t>& counts, double p) const {
    double sum = 0;
    for (const std::uint64_t count : counts) {
      const double off = static_cast<double>(count) - draws_ * p;
      sum += off * off / (draws_ * p * (1 - p));
    }
    const double freedom = entries() - 1;
    return std::fabs(sum * freedom / entries() - freedom) / std::sqrt(2 * freedom);
  }

  std::vector<std::uint64_t> single_;
  std::vector<std::uint64_t> pair_;  // the entries i and i + 1
  double draws_ = 0;
  double taken_ = 0;  // in each draw
};

}  // namespace sparsewire
