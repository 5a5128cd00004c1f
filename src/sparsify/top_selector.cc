#include "sparsify/top_selector.h"

#include <algorithm>
#include <cmath>

namespace sparsewire {
namespace {

// How many candidates a guessed threshold should give: enough that there are rarely fewer than k, and few enough that
// the selection is cheap.
double wanted(std::size_t k) {
  const auto count = static_cast<double>(k);
  return count + std::max(0.12 * count, 4 * std::sqrt(count) + 8);
}

// How much further than it fell lately the k-th magnitude may fall.
constexpr float kSafety = 1.5F;

}  // namespace

std::optional<std::size_t> TopSelector::take(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                             std::size_t k, const Score& score, UnitPass& pass) {
  Guess& guess = guesses_[u];
  const bool guessed = guess.threshold > 0;
  std::uint32_t threshold = guessed ? kernels::key_of(guess.threshold) : pass.sample(unit, gradient, k);
  const std::uint32_t tried = threshold;
  if (const auto bad = pass.take_best(unit, gradient, k, score, threshold)) return bad;
  // An entry that is still in the memory has a score below `threshold`, or is worse than k candidates. So the k best
  // entries of the unit are among the candidates as soon as k of their scores are at or above `threshold`.
  const auto enough = [&] { return pass.size() >= k && pass.count_from(threshold) >= k; };
  const bool sufficed = enough();
  const bool clean = guessed && threshold == tried;  // `found` shows how good the guess was
  const std::size_t found = pass.size();
  bool is_enough = sufficed;
  for (bool sampled = false; threshold > kernels::kLowestKey && !is_enough; sampled = true) {
    try {
      const std::uint32_t lower = sampled ? kernels::kLowestKey : pass.sample(unit, nullptr, k);
      threshold = std::min(threshold - 1, lower);
      pass.keep_best(k);
      pass.take_more(unit, k, score, threshold);
    } catch (...) {  // out of memory
      pass.take_back(unit, gradient);
      throw;
    }
    is_enough = enough();
  }
  const float before = guessed ? kernels::magnitude_of(guess.kth) : 0;
  guess.kth = pass.keep_best(k);
  if (clean) adjust_margin(guess, k, found, sufficed);
  note_fall(guess, before);
  const float margin = std::max(guess.margin, kSafety * guess.fall);
  guess.threshold = std::max(kernels::magnitude_of(guess.kth) * (1 - margin), kernels::magnitude_of(1));
  return std::nullopt;
}

// Where gradients vary from batch to batch, so does the k-th magnitude, and a guess above it costs a second pass. More
// candidates cost much less.
void TopSelector::note_fall(Guess& guess, float before) noexcept {
  constexpr float kMost = 0.1F;   // a larger one is a jump, and may not come again
  constexpr float kKept = 0.98F;  // of a fall, from step to step
  const float now = kernels::magnitude_of(guess.kth);
  const float fall = before > 0 ? std::clamp(1 - now / before, 0.0F, kMost) : 0;
  guess.fall = std::max(fall, kKept * guess.fall);
}

// Adjusts the margin to the wanted number of candidates: the number beyond k is about proportional to the margin.
void TopSelector::adjust_margin(Guess& guess, std::size_t k, std::size_t found, bool sufficed) const noexcept {
  const double beyond = static_cast<double>(found) - static_cast<double>(k);
  const double factor = sufficed && beyond > 0 ? (wanted(k) - static_cast<double>(k)) / beyond : 2.0;
  guess.margin = std::clamp(guess.margin * static_cast<float>(std::clamp(factor, 0.5, 2.0)), 1e-4F, 0.5F);
}

}  // namespace sparsewire
