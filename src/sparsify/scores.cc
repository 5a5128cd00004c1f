#include "sparsify/scores.h"

#include <cmath>

#include "kernels/random.h"

namespace sparsewire {

void RegularisedScore::rank(const std::uint32_t* indices, const float* values, std::size_t n,
                            std::uint32_t* keys) const noexcept {
  for (std::size_t i = 0; i < n; ++i) keys[i] = kernels::key_of(scores_.elsewhere * std::abs(values[i]));
  if (n == 0) return;
  const auto end = scores_.last_round.end();
  auto last = first_from(scores_.last_round, indices[0]);
  for (std::size_t i = 0; i < n && last != end; ++i) {
    while (last != end && last->index < indices[i]) ++last;
    if (last == end || last->index != indices[i]) continue;
    keys[i] = kernels::key_of(scores_.by->factor_at(*last, values[i]) * std::abs(values[i]));
  }
}

void DrawnScore::rank(const std::uint32_t* indices, const float* /*values*/, std::size_t n,
                      std::uint32_t* keys) const noexcept {
  kernels::hash(stream_, indices, n, keys);
  for (std::size_t i = 0; i < n; ++i) keys[i] = ~keys[i];
}

}  // namespace sparsewire
