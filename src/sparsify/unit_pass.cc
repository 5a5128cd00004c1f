#include "sparsify/unit_pass.h"

#include <algorithm>

#include "sparsify/sample.h"

namespace sparsewire {
namespace {

// Entries that a kernel processes at a time. Between pieces, the pass checks whether its lists have room.
constexpr std::size_t kPiece = 8192;
// For Random-k, which takes its entries out of a piece after the kernel, while the piece is in the L1 cache.
constexpr std::size_t kSmallPiece = 2048;

// The largest list of a thread; when it is full, the best k are chosen. Large enough that this is rare, and cheap per
// entry.
std::size_t most_candidates(std::size_t k) { return 2 * k + 4 * kPiece; }

// The capacity that a list begins with. Threads have about as many candidates each; a list that needs more grows.
std::size_t room_for(std::size_t k, std::size_t n, std::size_t threads) {
  return std::min(2 * (k + kPiece) / threads, n) + 2 * kPiece;
}

}  // namespace

UnitPass::UnitPass(Pool* pool, std::size_t number)
    : pool_(pool),
      number_(number),
      parts_(pool == nullptr ? 1 : static_cast<std::size_t>(pool->size())),
      keys_(parts_.size()) {}

void UnitPass::begin(float* memory) noexcept {
  memory_ = memory;
  for (Part& part : parts_) part.found.clear_all();
}

void UnitPass::divide(const Unit& unit, std::uint32_t threshold) {
  const std::size_t grains = (unit.size + kGrain - 1) / kGrain;
  is_shared_ = parts_.size() > 1 && unit.size > kLeastShared;
  if (tiles_.size() < kernels::tiles_of(unit.size)) tiles_.resize(kernels::tiles_of(unit.size));
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    part.begin = part.position = std::min(unit.size, grains * p / parts_.size() * kGrain);
    part.end = std::min(unit.size, grains * (p + 1) / parts_.size() * kGrain);
    part.failed = 0;
    part.norm.begin(tiles_.data(), part.begin / kernels::kTile);
    part.threshold = part.complete_from = threshold;
    part.resampled = part.full = false;
    part.bad = kernels::kNoneBad;
    part.found.clear();
    part.more.clear();
  }
}

template <class Piece>
void UnitPass::walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept {
  for_each_range(unit, part.position, part.end, most, [&](std::size_t first, std::size_t n) {
    if (!piece(first, n)) return false;
    part.position += n;
    return true;
  });
  if (part.position == part.end) part.norm.end();
}

// One call of the kernel. Returns whether all sums are finite.
bool UnitPass::accumulate_and_take(const kernels::ScaledGradient* gradient, std::size_t first, std::size_t n,
                                   Part& part, Candidates& list) noexcept {
  std::uint32_t* const indices = list.next_index();
  float* const values = list.next_value();
  if (gradient == nullptr) {
    list.added(kernels::take(first, n, memory_, part.threshold, indices, values, part.norm));
    return true;
  }
  const kernels::Taken taken =
      kernels::accumulate_and_take(*gradient, first, n, memory_, part.threshold, indices, values, part.norm);
  list.added(taken.count);
  part.bad = taken.bad;
  if (part.bad != kernels::kNoneBad) part.failed = n;
  return part.bad == kernels::kNoneBad;
}

// Calls walk_part(part) for the parts that are not at their end, until all are. If one stopped because its list is
// full, the list grows here and not on the pool's threads, because that may throw.
template <class WalkPart>
void UnitPass::walk_all(Candidates Part::*list, WalkPart walk_part) {
  for (bool is_full = true; is_full;) {
    for_each_part([&](Part& part) {
      if (part.position == part.end || part.bad != kernels::kNoneBad) return;
      part.full = false;
      walk_part(part);
    });
    is_full = false;
    for (Part& part : parts_) {
      if (!part.full) continue;
      is_full = true;
      (part.*list).reserve(2 * (part.*list).size() + 2 * kPiece);
    }
  }
}

std::optional<std::size_t> UnitPass::take_all(const Unit& unit, const kernels::ScaledGradient* gradient,
                                              std::uint32_t threshold) {
  divide(unit, threshold);
  try {
    walk_all(&Part::found, [&](Part& part) {
      walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
        part.full = part.found.capacity() < part.found.size() + n;
        return !part.full && accumulate_and_take(gradient, first, n, part, part.found);
      });
    });
  } catch (...) {
    take_back(unit, gradient);
    throw;
  }
  return finish(unit, gradient);
}

// Called when the list is full. Only the k best of the list can be among the k best of the unit, and of the entries
// still to come only those that are better than the k-th of the list (an equal one has a higher index). At the first
// time, a sample of the entries to come gives an estimate that may be higher still.
void UnitPass::raise_threshold(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                               const Score& score, Part& part, Candidates& list) noexcept {
  list.rank(score);
  const std::uint32_t kth = list.keep_best(k);
  put_lost_back(list);
  part.threshold = std::max(part.threshold, kth + 1);
  if (part.resampled) return;
  part.resampled = true;
  const std::uint32_t ahead =
      sample_threshold(unit, part.position, part.end, gradient, memory_, k, part.sampled.data());
  if (ahead <= part.threshold) return;
  part.threshold = ahead;
  part.complete_from = std::max(part.complete_from, ahead);
}

void UnitPass::walk_limited(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                            const Score& score, Part& part, Candidates& list) noexcept {
  walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
    if (list.size() + n > most_candidates(k)) raise_threshold(unit, gradient, k, score, part, list);
    part.full = list.capacity() < list.size() + n;
    return !part.full && accumulate_and_take(gradient, first, n, part, list);
  });
}

std::optional<std::size_t> UnitPass::take_best(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                                               const Score& score, std::uint32_t& threshold) {
  divide(unit, threshold);
  for (Part& part : parts_) {  // also for take_more(), which may be needed for the first time after many steps
    const std::size_t room = room_for(k, part.end - part.begin, parts_.size());
    part.found.reserve(k / parts_.size() + room);
    part.more.reserve(room);
    part.sampled.reserve(sample_size(part.end - part.begin));
  }
  try {
    walk_all(&Part::found, [&](Part& part) {
      walk_limited(unit, gradient, k, score, part, part.found);
      if (part.position == part.end) part.found.rank(score);
    });
  } catch (...) {
    take_back(unit, gradient);
    throw;
  }
  for (const Part& part : parts_) threshold = std::max(threshold, part.complete_from);
  return finish(unit, gradient);
}

void UnitPass::take_more(const Unit& unit, std::size_t k, const Score& score, std::uint32_t threshold) {
  for (Part& part : parts_) {
    part.more.clear();
    part.position = part.begin;
    part.full = false;
    part.norm.begin(tiles_.data(), part.begin / kernels::kTile);
    part.threshold = threshold;
    part.resampled = true;  // no estimate: this pass has to find what the estimates missed
  }
  try {
    walk_all(&Part::more, [&](Part& part) { walk_limited(unit, nullptr, k, score, part, part.more); });
    for (Part& part : parts_) part.found.reserve(part.found.size() + part.more.size());
  } catch (...) {
    for (Part& part : parts_) {
      put_back(part.more);
      part.position = part.end;  // of the pass that added the gradient
    }
    throw;
  }
  for_each_part([&](Part& part) {
    part.found.merge(part.more);
    part.found.rank(score);
  });
}

std::optional<std::size_t> UnitPass::take_at(const Unit& unit, const kernels::ScaledGradient* gradient,
                                             std::span<const std::uint32_t> positions) {
  divide(unit, kernels::kInfinityKey);
  for (Part& part : parts_) {
    const auto begin = std::lower_bound(positions.begin(), positions.end(), part.begin);
    part.count = static_cast<std::size_t>(begin - positions.begin());
    const auto end = std::lower_bound(begin, positions.end(), part.end);
    part.found.reserve(static_cast<std::size_t>(end - begin) + kPiece);
  }
  for_each_part([&](Part& part) {
    const std::uint32_t* next = positions.data() + part.count;
    const std::uint32_t* const end = positions.data() + positions.size();
    walk(unit, part, kSmallPiece, [&](std::size_t first, std::size_t n) {
      if (!accumulate_and_take(gradient, first, n, part, part.found)) return false;
      std::uint32_t* indices = part.found.next_index();
      float* values = part.found.next_value();
      std::size_t count = 0;
      for (; next != end && *next < part.position + n; ++next, ++count) {
        const std::size_t i = first + (*next - part.position);
        indices[count] = static_cast<std::uint32_t>(i);
        values[count] = memory_[i];
        memory_[i] = 0.0F;
      }
      part.found.added(count);
      return true;
    });
  });
  return finish(unit, gradient);
}

std::uint32_t UnitPass::sample(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k) {
  Part& part = parts_[0];
  part.sampled.reserve(sample_size(unit.size));
  return sample_threshold(unit, 0, unit.size, gradient, memory_, k, part.sampled.data());
}

// The end of a pass: after a sum that is not finite, takes it back.
std::optional<std::size_t> UnitPass::finish(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  std::size_t bad = kernels::kNoneBad;
  for (const Part& part : parts_) bad = std::min(bad, part.bad);
  if (bad == kernels::kNoneBad) {
    norm2_ = kernels::sum_tiles(tiles_.data(), kernels::tiles_of(unit.size));
    return std::nullopt;
  }
  take_back(unit, gradient);
  return bad;
}

// However far the pass got: afterwards every entry of the unit has made the round trip.
void UnitPass::take_back(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  for_each_part([&](Part& part) {
    put_back(part.found);
    if (gradient == nullptr) return;
    for_each_range(unit, part.begin, part.position, kPiece, [&](std::size_t first, std::size_t n) {
      kernels::restore(*gradient, first, n, memory_);
      return true;
    });
    for_each_range(unit, part.position + part.failed, part.end, kPiece, [&](std::size_t first, std::size_t n) {
      kernels::make_round_trip(*gradient, first, n, memory_);
      return true;
    });
  });
}

}  // namespace sparsewire
