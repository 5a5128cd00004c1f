// What a Sifter does about values that were rounded on their way: the difference goes back to the memory.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/slices.h"
#include "kernels/norm.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {
namespace {

// ||a - b||^2 over at most a tile of numbers, of the differences as floats. In eight sums, so that it is fast.
double distance2(const float* a, const float* b, std::size_t n) {
  std::array<double, 8> sums{};
  const auto add = [&](std::size_t i, double& sum) {
    const auto difference = static_cast<double>(a[i] - b[i]);
    sum += difference * difference;
  };
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) add(i + lane, sums[lane]);
  }
  for (; i < n; ++i) add(i, sums[0]);
  return kernels::add_pairwise(sums.data(), sums.size());
}

}  // namespace

// ||sent - received||^2, tile by tile: the same bits on any number of threads. It is not finite if a difference is not:
// squares of floats and their sums are far below the largest double.
double Sifter::Parts::rounding_loss2(const SparseVector& sent, std::span<const float> received) {
  const std::size_t tiles = kernels::tiles_of(sent.size());
  if (loss_of_tiles.size() < tiles) loss_of_tiles.resize(tiles + tiles / 4);
  for_each_slice(context.pool, sent.size(), kernels::kTile, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t first = begin; first < end; first += kernels::kTile) {
      loss_of_tiles[first / kernels::kTile] =
          distance2(sent.values.data() + first, received.data() + first, std::min(kernels::kTile, end - first));
    }
  });
  return kernels::sum_tiles(loss_of_tiles.data(), tiles);
}

void Sifter::keep_rounding_loss(const SparseVector& sent, std::span<const float> received) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check(sent, "keep_rounding_loss");
  p.can_flush = false;
  if (sent.size() != received.size()) {
    throw UsageError(fmt::format("[{}] keep_rounding_loss: {} values were received, but {} were sent", p.name,
                                 received.size(), sent.size()));
  }
  const double change = p.rounding_loss2(sent, received);
  const float* const values = sent.values.data();
  for (std::size_t i = 0; !std::isfinite(change) && i < sent.size(); ++i) {
    if (std::isfinite(values[i] - received[i])) continue;
    throw UsageError(
        fmt::format("[{}] entry {} was sent as {} and received as {}", p.name, sent.index(i), values[i], received[i]));
  }
  // Often nothing is lost: a server that answers in the format of what it got. On a device this saves a copy.
  if (change != 0 && p.feedback.kind != Feedback::Kind::none) p.memory.add_differences(sent, received);
  p.stats.memory_norm2 += change;
  p.stats.total_error += change;
}

}  // namespace sparsewire
