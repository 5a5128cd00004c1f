#include "sparsify/error_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/select.h"

namespace sparsewire {
namespace {

// Entries that a kernel processes at a time. Between pieces, the pass checks whether its lists have room.
constexpr std::size_t kPiece = 8192;
// For Random-k, which takes its entries out of a piece after the kernel, while the piece is in the L1 cache.
constexpr std::size_t kSmallPiece = 2048;

// Threads share a unit in parts of so many entries: small enough to divide 25M entries among many threads, and whole
// tiles, so that no tile has two threads.
constexpr std::size_t kGrain = 65536;
static_assert(kGrain % kernels::kTile == 0);

constexpr std::size_t kSampleLeast = 4096;
constexpr std::size_t kSampleMost =
    65536;  // two cache misses for each: about a tenth of the time of a pass over 25M entries

std::size_t sample_size(std::size_t n) { return std::min(n, std::clamp(n / 64, kSampleLeast, kSampleMost)); }

// The capacity of each thread's list; when it is full, the best k are chosen. Large enough that this is rare, and cheap
// per entry.
std::size_t room_for(std::size_t k, std::size_t n) { return std::min(2 * k + 2 * kPiece, n) + 2 * kPiece; }

float sum_at(const kernels::ScaledGradient* gradient, const float* memory, std::size_t i) {
  if (gradient == nullptr) return memory[i];
  return gradient->decay * memory[i] + gradient->scale * kernels::number_at(*gradient, i);
}

// The segment that holds the entry at `position`.
std::size_t segment_at(const Unit& unit, std::size_t position) {
  const auto after = std::partition_point(unit.segments.begin(), unit.segments.end(),
                                          [&](const Segment& s) { return s.position + s.size <= position; });
  return static_cast<std::size_t>(after - unit.segments.begin());
}

// Calls range(first, n) for the consecutive entries at the positions [from, to), until it returns false.
template <class Range>
void for_each_range(const Unit& unit, std::size_t from, std::size_t to, std::size_t most, Range range) {
  for (std::size_t s = segment_at(unit, from); from < to; ++s) {
    const Segment& segment = unit.segments[s];
    const std::size_t end = std::min(to, segment.position + segment.size);
    while (from < end) {
      const std::size_t n = std::min(most, end - from);
      if (!range(segment.begin + (from - segment.position), n)) return;
      from += n;
    }
  }
}

// ErrorMemory::sample for the entries at the positions [from, to).
std::uint32_t sample_range(const Unit& unit, std::size_t from, std::size_t to, const kernels::ScaledGradient* gradient,
                           const float* memory, std::size_t k, std::uint32_t* keys) {
  const std::size_t n = to - from;
  const std::size_t size = sample_size(n);
  if (size == 0) return kernels::kLowestKey;
  // One position in each of `size` equal stretches. Its place within the stretch changes by the golden ratio, so that
  // the positions do not coincide with a period of the model's layout.
  const double stretch = static_cast<double>(n) / static_cast<double>(size);
  double jitter = 0;
  std::size_t segment = segment_at(unit, from);
  for (std::size_t s = 0; s < size; ++s) {
    const auto ahead = std::min(n - 1, static_cast<std::size_t>((static_cast<double>(s) + jitter) * stretch));
    jitter += 0.6180339887498949;
    if (jitter >= 1) jitter -= 1;
    while (from + ahead >= unit.segments[segment].position + unit.segments[segment].size) ++segment;
    const Segment& at = unit.segments[segment];
    keys[s] = kernels::key_of(sum_at(gradient, memory, at.begin + (from + ahead - at.position)));
  }
  std::size_t rank = k;
  if (size < n) {  // four standard deviations below the k-th: too low costs little, too high costs a second pass
    const double hits = static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
    rank = static_cast<std::size_t>(std::ceil(hits + 4 * std::sqrt(hits) + 4));
  }
  if (rank > size) return kernels::kLowestKey;
  const std::uint32_t key = kernels::kth_largest(keys, size, rank, keys).key;
  return std::clamp(key, kernels::kLowestKey, kernels::kInfinityKey);
}

}  // namespace

ErrorMemory::ErrorMemory(std::size_t size, Pool* pool, Device device)
    : size_(size),
      memory_(device.kind == Device::host ? size : 0),
      place_(device.kind == Device::host ? Device{} : device),
      device_(device.kind == Device::host ? nullptr : make_device_memory(device, size)),
      whole_(whole_unit(size)),
      pool_(pool),
      parts_(pool == nullptr ? 1 : static_cast<std::size_t>(pool->size())) {}

void ErrorMemory::divide(const Unit& unit, std::uint32_t threshold) {
  const std::size_t grains = (unit.size + kGrain - 1) / kGrain;
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
  }
}

template <class Piece>
void ErrorMemory::walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept {
  for_each_range(unit, part.position, part.end, most, [&](std::size_t first, std::size_t n) {
    if (!piece(first, n)) return false;
    part.position += n;
    return true;
  });
  if (part.position == part.end) part.norm.end();
}

// A unit that is not worth dividing runs on the calling thread: waking the pool would cost more.
template <class Work>
void ErrorMemory::for_each_part(const Unit& unit, Work work) {
  if (pool_ == nullptr || unit.size <= kGrain) {
    for (Part& part : parts_) work(part);
  } else {
    pool_->run([&](int thread) { work(parts_[static_cast<std::size_t>(thread)]); });
  }
}

// One call of the kernel. Returns whether all sums are finite.
bool ErrorMemory::accumulate_and_take(const kernels::ScaledGradient* gradient, std::size_t first, std::size_t n,
                                      Part& part) noexcept {
  std::uint32_t* const indices = part.found.next_index();
  float* const values = part.found.next_value();
  if (gradient == nullptr) {
    part.found.added(kernels::take(first, n, memory_.data(), part.threshold, indices, values, part.norm));
    return true;
  }
  const kernels::Taken taken =
      kernels::accumulate_and_take(*gradient, first, n, memory_.data(), part.threshold, indices, values, part.norm);
  part.found.added(taken.count);
  part.bad = taken.bad;
  if (part.bad != kernels::kNoneBad) part.failed = n;
  return part.bad == kernels::kNoneBad;
}

std::optional<std::size_t> ErrorMemory::take_all(const Unit& unit, const kernels::ScaledGradient* gradient,
                                                 std::uint32_t threshold, Candidates& found) {
  divide(unit, threshold);
  for (bool full = true; full;) {
    for_each_part(unit, [&](Part& part) {
      if (part.bad != kernels::kNoneBad) return;
      part.full = false;
      walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
        part.full = part.found.capacity() < part.found.size() + n;
        return !part.full && accumulate_and_take(gradient, first, n, part);
      });
    });
    full = false;
    try {
      for (Part& part : parts_) {  // here and not on the pool's threads, because it may throw
        if (!part.full) continue;
        full = true;
        part.found.reserve(2 * part.found.size() + 2 * kPiece);
      }
    } catch (...) {
      take_back(unit, gradient);
      throw;
    }
  }
  return finish(unit, gradient, found);
}

std::optional<std::size_t> ErrorMemory::accumulate(const kernels::ScaledGradient* gradient) {
  if (is_on_device()) {
    const UnitChoice nothing;
    const auto bad = device_->take({&whole_, 1}, {&nothing, 1}, 1, nullptr, gradient, taken_);
    norm2_ = taken_.accumulated_norm2[0];
    return bad;
  }
  return take_all(whole_, gradient, kernels::kInfinityKey, nothing_);
}

// Called when the list is full. Only the k best of the list can be among the k best of the unit, and of the entries
// still to come only those that are better than the k-th of the list (an equal one has a higher index). At the first
// time, a sample of the entries to come gives an estimate that may be higher still.
void ErrorMemory::raise_threshold(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                                  const Score& score, Part& part) noexcept {
  part.found.rank(score);
  const std::uint32_t kth = keep_best(part.found, k);
  part.threshold = std::max(part.threshold, kth + 1);
  if (part.resampled) return;
  part.resampled = true;
  const std::uint32_t ahead =
      sample_range(unit, part.position, part.end, gradient, memory_.data(), k, part.sampled.data());
  if (ahead <= part.threshold) return;
  part.threshold = ahead;
  part.complete_from = std::max(part.complete_from, ahead);
}

template <class Take>
void ErrorMemory::walk_limited(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                               const Score& score, Part& part, Take take) noexcept {
  walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
    if (part.found.capacity() < part.found.size() + n) raise_threshold(unit, gradient, k, score, part);
    return take(first, n);
  });
}

// `found` must have room for the result of a first pass that did not find enough, and for that of a second pass.
void ErrorMemory::reserve_limited(const Unit& unit, std::size_t k, Candidates& found) {
  const std::size_t room = room_for(k, unit.size);
  found.reserve(k + room);
  for (Part& part : parts_) {
    part.found.reserve(room);
    part.sampled.reserve(sample_size(unit.size));
  }
}

std::uint32_t ErrorMemory::complete_from() const noexcept {
  std::uint32_t threshold = 0;
  for (const Part& part : parts_) threshold = std::max(threshold, part.complete_from);
  return threshold;
}

std::optional<std::size_t> ErrorMemory::take_best(const Unit& unit, const kernels::ScaledGradient* gradient,
                                                  std::size_t k, const Score& score, std::uint32_t& threshold,
                                                  Candidates& found) {
  divide(unit, threshold);
  reserve_limited(unit, k, found);
  for_each_part(unit, [&](Part& part) {
    walk_limited(unit, gradient, k, score, part,
                 [&](std::size_t first, std::size_t n) { return accumulate_and_take(gradient, first, n, part); });
  });
  threshold = complete_from();
  return finish(unit, gradient, found);
}

void ErrorMemory::take_more(const Unit& unit, std::size_t k, const Score& score, std::uint32_t threshold,
                            Candidates& found) {
  divide(unit, threshold);
  reserve_limited(unit, k, found);
  for_each_part(unit, [&](Part& part) {
    part.resampled = true;  // no estimate: this pass has to find what the estimates missed
    walk_limited(unit, nullptr, k, score, part,
                 [&](std::size_t first, std::size_t n) { return accumulate_and_take(nullptr, first, n, part); });
  });
  try {
    for (const Part& part : parts_) found.reserve(k + part.found.size());
  } catch (...) {
    for (Part& part : parts_) put_back(part.found);
    throw;
  }
  for (Part& part : parts_) {
    if (part.found.size() == 0) continue;
    found.merge(part.found);
    found.rank(score);
    keep_best(found, k);
  }
}

std::optional<std::size_t> ErrorMemory::take_at(const Unit& unit, const kernels::ScaledGradient* gradient,
                                                std::span<const std::uint32_t> positions, Candidates& found) {
  if (is_on_device()) {
    found.clear();
    found.reserve(positions.size());
    device_->take_at(positions, /*zeros=*/true, found.next_value());
    std::copy(positions.begin(), positions.end(), found.next_index());
    found.added(positions.size());
    return std::nullopt;
  }
  divide(unit, kernels::kInfinityKey);
  for (Part& part : parts_) part.found.reserve(positions.size() + kPiece);
  for_each_part(unit, [&](Part& part) {
    const std::uint32_t* next = std::lower_bound(positions.data(), positions.data() + positions.size(), part.begin);
    const std::uint32_t* const end = positions.data() + positions.size();
    walk(unit, part, kSmallPiece, [&](std::size_t first, std::size_t n) {
      if (!accumulate_and_take(gradient, first, n, part)) return false;
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
  return finish(unit, gradient, found);
}

std::optional<std::size_t> ErrorMemory::take_everything(const kernels::ScaledGradient* gradient, std::span<float> all) {
  const Unit& unit = whole_;
  if (is_on_device()) {
    if (const auto bad = accumulate(gradient)) return bad;
    device_->read(0, all);
    device_->clear();
    return std::nullopt;
  }
  divide(unit, kernels::kInfinityKey);
  for_each_part(unit, [&](Part& part) {
    walk(unit, part, kGrain, [&](std::size_t first, std::size_t n) {
      if (gradient == nullptr) {
        std::copy_n(memory_.data() + first, n, all.data() + first);
        kernels::sum_squares(Gradient(all), first, n, part.norm);
        return true;
      }
      part.bad = kernels::accumulate_into(*gradient, first, n, memory_.data(), all.data(), part.norm);
      return part.bad == kernels::kNoneBad;
    });
  });
  std::size_t bad = kernels::kNoneBad;
  for (const Part& part : parts_) bad = std::min(bad, part.bad);
  if (bad != kernels::kNoneBad) {
    make_round_trip(unit, gradient);
    return bad;
  }
  norm2_ = kernels::sum_tiles(tiles_.data(), kernels::tiles_of(unit.size));
  for_each_part(unit, [&](Part& part) { std::fill_n(memory_.data() + part.begin, part.end - part.begin, 0.0F); });
  return std::nullopt;
}

// The end of a pass: joins the lists of the threads or, after a sum that is not finite, takes the pass back.
std::optional<std::size_t> ErrorMemory::finish(const Unit& unit, const kernels::ScaledGradient* gradient,
                                               Candidates& found) {
  std::size_t bad = kernels::kNoneBad;
  for (const Part& part : parts_) bad = std::min(bad, part.bad);
  if (bad == kernels::kNoneBad) {
    try {
      collect(found);
    } catch (...) {
      take_back(unit, gradient);
      throw;
    }
    norm2_ = kernels::sum_tiles(tiles_.data(), kernels::tiles_of(unit.size));
    return std::nullopt;
  }
  take_back(unit, gradient);
  found.clear();
  return bad;
}

// Takes the pass back, however far it got: afterwards every entry of the unit has made the round trip.
void ErrorMemory::take_back(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  for_each_part(unit, [&](Part& part) {
    put_back(part.found);
    if (gradient == nullptr) return;
    for_each_range(unit, part.begin, part.position, kPiece, [&](std::size_t first, std::size_t n) {
      kernels::restore(*gradient, first, n, memory_.data());
      return true;
    });
    for_each_range(unit, part.position + part.failed, part.end, kPiece, [&](std::size_t first, std::size_t n) {
      kernels::make_round_trip(*gradient, first, n, memory_.data());
      return true;
    });
  });
}

// Makes room first: if that throws, nothing has been moved.
void ErrorMemory::collect(Candidates& found) {
  std::size_t size = 0;
  for (const Part& part : parts_) size += part.found.size();
  parts_[0].found.reserve(size);
  std::swap(found, parts_[0].found);
  for (std::size_t p = 1; p < parts_.size(); ++p) found.append(parts_[p].found);
}

void ErrorMemory::restore(const Unit& unit, const kernels::ScaledGradient* gradient) {
  if (gradient == nullptr) return;
  if (is_on_device()) return device_->restore(*gradient);
  divide(unit, kernels::kInfinityKey);
  for_each_part(unit, [&](Part& part) {
    for_each_range(unit, part.begin, part.end, kPiece, [&](std::size_t first, std::size_t n) {
      kernels::restore(*gradient, first, n, memory_.data());
      return true;
    });
  });
}

void ErrorMemory::make_round_trip(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept {
  if (gradient == nullptr) return;
  for_each_range(unit, 0, unit.size, kPiece, [&](std::size_t first, std::size_t n) {
    kernels::make_round_trip(*gradient, first, n, memory_.data());
    return true;
  });
}

std::uint32_t ErrorMemory::sample(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k) {
  Part& part = parts_[0];
  part.sampled.reserve(sample_size(unit.size));
  return sample_range(unit, 0, unit.size, gradient, memory_.data(), k, part.sampled.data());
}

double ErrorMemory::norm2(const Unit& unit, const Candidates& chosen) {
  const std::size_t tiles = kernels::tiles_of(unit.size);
  slices_.assign(tiles * kernels::kSlices, 0.0);
  if (unit.segments.size() == 1) {
    kernels::sum_sparse_squares(chosen.indices(), chosen.values(), chosen.size(), unit.segments[0].begin,
                                slices_.data());
    return kernels::sum_slices(slices_.data(), tiles);
  }
  positions_.resize(chosen.size());
  std::size_t c = 0;
  for (const Segment& segment : unit.segments) {
    const std::size_t shift = segment.begin - segment.position;
    for (; c < chosen.size() && chosen.indices()[c] < segment.begin + segment.size; ++c) {
      positions_[c] = static_cast<std::uint32_t>(chosen.indices()[c] - shift);
    }
  }
  kernels::sum_sparse_squares(positions_.data(), chosen.values(), chosen.size(), 0, slices_.data());
  return kernels::sum_slices(slices_.data(), tiles);
}

double ErrorMemory::norm2(const kernels::ScaledGradient& gradient) {
  if (is_on_device()) return device_->norm2(gradient);
  const std::size_t tiles = kernels::tiles_of(gradient.size);
  if (tiles_.size() < tiles) tiles_.resize(tiles);
  kernels::TileNorms norm;
  norm.begin(tiles_.data(), 0);
  kernels::sum_squares(gradient, 0, gradient.size, norm);
  norm.end();
  return kernels::sum_tiles(tiles_.data(), tiles);
}

std::uint32_t ErrorMemory::keep_best(Candidates& candidates, std::size_t k) noexcept {
  const std::uint32_t kth = candidates.keep_best(k);
  for (std::size_t i = 0; i < candidates.lost_count(); ++i) {
    memory_[candidates.lost_indices()[i]] = candidates.lost_values()[i];
  }
  return kth;
}

}  // namespace sparsewire
