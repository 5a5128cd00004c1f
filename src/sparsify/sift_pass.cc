#include "sparsify/sift_pass.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/select.h"

namespace sparsewire {
namespace {

// Entries that a kernel processes at a time. Between pieces, the pass checks whether its lists have room.
constexpr std::size_t kPiece = 8192;
// For Random-k, which takes its entries out of a piece after the kernel, while the piece is in the L1 cache.
constexpr std::size_t kSmallPiece = 2048;

constexpr std::size_t kSampleLeast = 4096;
constexpr std::size_t kSampleMost =
    65536;  // two cache misses for each: about a tenth of the time of a pass over 25M entries

std::size_t sample_size(std::size_t n) { return std::min(n, std::clamp(n / 64, kSampleLeast, kSampleMost)); }

// The capacity of each thread's list; when it is full, the best k are chosen. Large enough that this is rare, and cheap
// per entry.
std::size_t room_for(std::size_t k, std::size_t n) { return std::min(2 * k + 2 * kPiece, n) + 2 * kPiece; }

float sum_at(const Gradient* gradient, const float* memory, std::size_t i) {
  if (gradient == nullptr) return memory[i];
  return gradient->decay * memory[i] + gradient->scale * kernels::number_at(*gradient, i);
}

// SiftPass::sample for the entries from `offset` of block `block` up to the block `end_block`.
std::uint32_t sample_blocks(const Unit& unit, std::size_t block, std::size_t offset, std::size_t end_block,
                            const Gradient* gradient, const float* memory, std::size_t k, std::uint32_t* keys) {
  std::size_t n = 0;
  for (std::size_t b = block; b < end_block; ++b) n += unit.blocks[b].size;
  n -= offset;
  const std::size_t size = sample_size(n);
  if (size == 0) return kernels::kLowestKey;
  // One position in each of `size` equal stretches. Its place within the stretch changes by the golden ratio, so that
  // the positions do not coincide with a period of the model's layout.
  const double stretch = static_cast<double>(n) / static_cast<double>(size);
  std::size_t passed = 0;  // entries before the current block, counted from `offset` of the first
  double jitter = 0;
  for (std::size_t s = 0; s < size; ++s) {
    const auto position = std::min(n - 1, static_cast<std::size_t>((static_cast<double>(s) + jitter) * stretch));
    jitter += 0.6180339887498949;
    if (jitter >= 1) jitter -= 1;
    while (position - passed >= unit.blocks[block].size - offset) {
      passed += unit.blocks[block].size - offset;
      offset = 0;
      ++block;
    }
    keys[s] = kernels::key_of(sum_at(gradient, memory, unit.blocks[block].begin + offset + (position - passed)));
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

SiftPass::SiftPass(Pool* pool) : pool_(pool), parts_(pool == nullptr ? 1 : static_cast<std::size_t>(pool->size())) {}

void SiftPass::divide(const Unit& unit, std::uint32_t threshold) {
  const std::size_t blocks = unit.blocks.size();
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    part.first_block = blocks * p / parts_.size();
    part.end_block = blocks * (p + 1) / parts_.size();
    part.block = part.first_block;
    part.offset = 0;
    part.lanes.fill(0);
    part.threshold = part.complete_from = threshold;
    part.resampled = part.full = false;
    part.bad = kernels::kNoneBad;
    part.found.clear();
  }
  if (block_norm2_.size() < blocks) block_norm2_.resize(blocks);
}

template <class Piece>
void SiftPass::walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept {
  for (; part.block < part.end_block; ++part.block, part.offset = 0) {
    const Block& block = unit.blocks[part.block];
    while (part.offset < block.size) {
      const std::size_t n = std::min(most, block.size - part.offset);
      if (!piece(block.begin + part.offset, n)) return;
      part.offset += n;
    }
    block_norm2_[part.block] = kernels::sum_lanes(part.lanes.data());
    part.lanes.fill(0);
  }
}

// A unit of one block runs on the calling thread: waking the pool would cost more.
template <class Work>
void SiftPass::for_each_part(const Unit& unit, Work work) {
  if (pool_ == nullptr || unit.blocks.size() <= 1) {
    for (Part& part : parts_) work(part);
  } else {
    pool_->run([&](int thread) { work(parts_[static_cast<std::size_t>(thread)]); });
  }
}

std::optional<std::size_t> SiftPass::take_all(const Unit& unit, const Gradient& gradient, float* memory,
                                              std::uint32_t threshold, Candidates& found) {
  divide(unit, threshold);
  for (bool full = true; full;) {
    for_each_part(unit, [&](Part& part) {
      part.full = false;
      walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
        if (part.bad != kernels::kNoneBad) return false;
        part.full = part.found.capacity() < part.found.size() + n;
        if (part.full) return false;
        const kernels::Taken taken = kernels::accumulate_and_take(
            gradient, first, n, memory, threshold, part.found.next_index(), part.found.next_value(), part.lanes.data());
        part.found.added(taken.count);
        part.bad = taken.bad;
        return part.bad == kernels::kNoneBad;
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
      take_back(unit, gradient, memory);
      throw;
    }
  }
  return finish(unit, gradient, memory, found);
}

// Called when the list is full. Only the k best of the list can be among the k best of the unit, and of the entries
// still to come only those that are better than the k-th of the list (an equal one has a higher index). At the first
// time, a sample of the entries to come gives an estimate that may be higher still.
void SiftPass::raise_threshold(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k,
                               const Score& score, Part& part) noexcept {
  part.found.rank(score);
  const std::uint32_t kth = part.found.keep_best(k, memory);
  part.threshold = std::max(part.threshold, kth + 1);
  if (part.resampled) return;
  part.resampled = true;
  const std::uint32_t ahead =
      sample_blocks(unit, part.block, part.offset, part.end_block, gradient, memory, k, part.sampled.data());
  if (ahead <= part.threshold) return;
  part.threshold = ahead;
  part.complete_from = std::max(part.complete_from, ahead);
}

template <class Take>
void SiftPass::walk_limited(const Unit& unit, const Gradient* gradient, float* memory, std::size_t k,
                            const Score& score, Part& part, Take take) noexcept {
  walk(unit, part, kPiece, [&](std::size_t first, std::size_t n) {
    if (part.found.capacity() < part.found.size() + n) raise_threshold(unit, gradient, memory, k, score, part);
    return take(first, n);
  });
}

// `found` must have room for the result of a first pass that did not find enough, and for that of a second pass.
void SiftPass::reserve_limited(const Unit& unit, std::size_t k, Candidates& found) {
  const std::size_t room = room_for(k, unit.size);
  found.reserve(k + room);
  for (Part& part : parts_) {
    part.found.reserve(room);
    part.sampled.reserve(sample_size(unit.size));
  }
}

std::uint32_t SiftPass::complete_from() const noexcept {
  std::uint32_t threshold = 0;
  for (const Part& part : parts_) threshold = std::max(threshold, part.complete_from);
  return threshold;
}

std::optional<std::size_t> SiftPass::take_best(const Unit& unit, const Gradient& gradient, float* memory, std::size_t k,
                                               const Score& score, std::uint32_t& threshold, Candidates& found) {
  divide(unit, threshold);
  reserve_limited(unit, k, found);
  for_each_part(unit, [&](Part& part) {
    walk_limited(unit, &gradient, memory, k, score, part, [&](std::size_t first, std::size_t n) {
      const kernels::Taken taken =
          kernels::accumulate_and_take(gradient, first, n, memory, part.threshold, part.found.next_index(),
                                       part.found.next_value(), part.lanes.data());
      part.found.added(taken.count);
      part.bad = taken.bad;
      return part.bad == kernels::kNoneBad;
    });
  });
  threshold = complete_from();
  return finish(unit, gradient, memory, found);
}

void SiftPass::take_more(const Unit& unit, float* memory, std::size_t k, const Score& score, std::uint32_t threshold,
                         Candidates& found) {
  divide(unit, threshold);
  reserve_limited(unit, k, found);
  for_each_part(unit, [&](Part& part) {
    part.resampled = true;  // no estimate: this pass has to find what the estimates missed
    walk_limited(unit, nullptr, memory, k, score, part, [&](std::size_t first, std::size_t n) {
      part.found.added(
          kernels::take(first, n, memory, part.threshold, part.found.next_index(), part.found.next_value()));
      return true;
    });
  });
  try {
    for (const Part& part : parts_) found.reserve(k + part.found.size());
  } catch (...) {
    for (Part& part : parts_) part.found.put_back(memory);
    throw;
  }
  for (Part& part : parts_) {
    if (part.found.size() == 0) continue;
    found.merge(part.found);
    found.rank(score);
    found.keep_best(k, memory);
  }
}

std::optional<std::size_t> SiftPass::take_at(const Unit& unit, const Gradient& gradient, float* memory,
                                             std::span<const std::uint32_t> positions, Candidates& found) {
  divide(unit, kernels::kInfinityKey);
  for (Part& part : parts_) part.found.reserve(positions.size() + kPiece);
  for_each_part(unit, [&](Part& part) {
    std::size_t before = 0;  // entries of the unit before this part's first block
    for (std::size_t b = 0; b < part.first_block; ++b) before += unit.blocks[b].size;
    const std::uint32_t* next = std::lower_bound(positions.data(), positions.data() + positions.size(), before);
    const std::uint32_t* const end = positions.data() + positions.size();
    walk(unit, part, kSmallPiece, [&](std::size_t first, std::size_t n) {
      part.bad = kernels::accumulate_and_take(gradient, first, n, memory, kernels::kInfinityKey,
                                              part.found.next_index(), part.found.next_value(), part.lanes.data())
                     .bad;
      if (part.bad != kernels::kNoneBad) return false;
      std::uint32_t* indices = part.found.next_index();
      float* values = part.found.next_value();
      std::size_t count = 0;
      for (; next != end && *next < before + n; ++next, ++count) {
        const std::size_t i = first + (*next - before);
        indices[count] = static_cast<std::uint32_t>(i);
        values[count] = memory[i];
        memory[i] = 0.0F;
      }
      part.found.added(count);
      before += n;
      return true;
    });
  });
  return finish(unit, gradient, memory, found);
}

// The end of a pass that accumulates: joins the lists of the threads or, after a sum that is not finite, takes the pass
// back.
std::optional<std::size_t> SiftPass::finish(const Unit& unit, const Gradient& gradient, float* memory,
                                            Candidates& found) {
  std::size_t bad = kernels::kNoneBad;
  for (const Part& part : parts_) bad = std::min(bad, part.bad);
  if (bad == kernels::kNoneBad) {
    try {
      collect(found);
    } catch (...) {
      take_back(unit, gradient, memory);
      throw;
    }
    norm2_ = 0;
    for (std::size_t b = 0; b < unit.blocks.size(); ++b) norm2_ += block_norm2_[b];
    return std::nullopt;
  }
  take_back(unit, gradient, memory);
  found.clear();
  return bad;
}

// Restores the unit as it was before the pass, up to rounding, however far the pass got.
void SiftPass::take_back(const Unit& unit, const Gradient& gradient, float* memory) {
  for_each_part(unit, [&](Part& part) {
    part.found.put_back(memory);
    for (std::size_t b = part.first_block; b < part.block; ++b) {
      kernels::subtract(gradient, unit.blocks[b].begin, unit.blocks[b].size, memory);
    }
    if (part.offset != 0) kernels::subtract(gradient, unit.blocks[part.block].begin, part.offset, memory);
  });
}

// Makes room first: if that throws, nothing has been moved.
void SiftPass::collect(Candidates& found) {
  std::size_t size = 0;
  for (const Part& part : parts_) size += part.found.size();
  parts_[0].found.reserve(size);
  std::swap(found, parts_[0].found);
  for (std::size_t p = 1; p < parts_.size(); ++p) found.append(parts_[p].found);
}

void SiftPass::subtract(const Unit& unit, const Gradient& gradient, float* memory) {
  divide(unit, kernels::kInfinityKey);
  for_each_part(unit, [&](Part& part) {
    for (std::size_t b = part.first_block; b < part.end_block; ++b) {
      kernels::subtract(gradient, unit.blocks[b].begin, unit.blocks[b].size, memory);
    }
  });
}

std::uint32_t SiftPass::sample(const Unit& unit, const Gradient* gradient, const float* memory, std::size_t k) {
  Part& part = parts_[0];
  part.sampled.reserve(sample_size(unit.size));
  return sample_blocks(unit, 0, 0, unit.blocks.size(), gradient, memory, k, part.sampled.data());
}

}  // namespace sparsewire
