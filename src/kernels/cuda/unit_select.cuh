// Takes the k largest entries, or those above a threshold, out of each of many units.
#pragma once

#include <cub/block/block_scan.cuh>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/unit_tiles.cuh"

namespace sparsewire::cuda {

// The bits of a rank that each round looks at, from the top: 11, 10, 10.
inline constexpr int kSelectRounds = 3;
__device__ inline unsigned select_above(int round) { return round == 0 ? 31 : round == 1 ? 20 : 10; }
__device__ inline unsigned select_shift(int round) { return round == 0 ? 20 : round == 1 ? 10 : 0; }

inline constexpr int kSelectThreads = 512;

// Counts the ranks of a tile that have the bits `prefix` above those of this round. By all threads of the block.
__device__ inline void count_ranks(const float* memory, const UnitTile& tile, const Piece* pieces, float factor,
                                   int round, std::uint32_t prefix, std::uint32_t* bins) {
  const unsigned above = select_above(round);
  const unsigned shift = select_shift(round);
  for (std::uint32_t offset = threadIdx.x; offset < kTile; offset += kSelectThreads) {
    const bool is_inside = offset < tile.size;
    const std::uint32_t rank = is_inside ? rank_of(memory[index_in(tile, pieces, offset)], factor) : 0;
    const bool counts = is_inside && (round == 0 || rank >> above == prefix);
    count_in_bin(bins, rank >> shift & ((1U << (above - shift)) - 1), counts);
  }
}

// How many ranks of the block are at least `least`. The `counts` of two calls in turn must differ.
template <int kCount, unsigned kWarps>
__device__ inline std::uint32_t count_from(const std::uint32_t (&ranks)[kCount], std::uint32_t least,
                                           std::uint32_t (&counts)[kWarps]) {
  std::uint32_t count = 0;
#pragma unroll
  for (int row = 0; row < kCount; ++row) count += ranks[row] >= least ? 1 : 0;
  count = __reduce_add_sync(kAllLanes, count);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, threadIdx.x % 32 < kWarps ? counts[threadIdx.x % 32] : 0);
}

// The bar that k ranks of the block reach, or all that are at least `low` if they are no more. By bisection, which
// stops when k are above: first between low and low + width, above that if there are k. REQUIRES: all threads call it.
template <int kCount, unsigned kWarps>
__device__ inline Bar find_bar(const std::uint32_t (&ranks)[kCount], std::uint32_t k, std::uint32_t low,
                               std::uint32_t width, std::uint32_t (&counts)[2][kWarps]) {
  unsigned turn = 0;
  const auto count = [&](std::uint32_t least) { return count_from(ranks, least, counts[turn ^= 1U]); };
  if (count(low) <= k) return {low - 1, 0, 1};
  std::uint32_t high = low;
  std::uint32_t above = 0;  // that many are at or above `high`, fewer than k; more than k at or above `low`
  for (;; width *= 2) {
    high = min(low + width, kInfinityKey + 1);
    above = high > kInfinityKey ? 0 : count(high);
    if (above == k) return {high - 1, 0, 1};
    if (above < k) break;
    low = high;
  }
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::uint32_t here = count(middle);
    if (here == k) return {middle - 1, 0, 1};
    if (here > k) {
      low = middle;
    } else {
      high = middle;
      above = here;
    }
  }
  return {low, k - above, 1};
}

using SelectScan = cub::BlockScan<std::uint32_t, kSelectThreads>;

struct SelectShared {
  typename SelectScan::TempStorage scan;
  std::uint32_t bins[kBins];
  std::uint32_t found[2];
};

// The bin in which entry number `place` from the top is, and its place there. By all threads of the block.
__device__ inline uint2 find_bin_from_top(const std::uint32_t* bins, std::uint32_t place, SelectShared& s) {
  constexpr unsigned kEach = kBins / kSelectThreads;
  std::uint32_t mine[kEach];  // thread 0 has the highest
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < kEach; ++i) sum += mine[i] = bins[kBins - 1 - (threadIdx.x * kEach + i)];
  std::uint32_t through = 0;
  SelectScan(s.scan).InclusiveSum(sum, through);
  std::uint32_t before = through - sum;
  if (before < place && place <= through) {
    for (unsigned i = 0; i < kEach; ++i) {
      if (place <= before + mine[i]) {
        s.found[0] = kBins - 1 - (threadIdx.x * kEach + i);
        s.found[1] = place - before;
        break;
      }
      before += mine[i];
    }
  }
  __syncthreads();
  const uint2 found{s.found[0], s.found[1]};
  __syncthreads();
  return found;
}

// Where the floor of the next step is, and how far below the k-th: see unit_candidates.cuh. They affect the speed only.
// A unit with too few candidates costs much, so more are wanted than on the processor, and the margin changes slowly.
__device__ inline float next_margin(float margin, std::uint32_t candidates, std::uint32_t k) {
  const auto few = static_cast<float>(k);
  const float wanted = fmaxf(0.2F * few, 6 * sqrtf(few) + 12);  // beyond k
  const float by = candidates > k ? sqrtf(wanted / static_cast<float>(candidates - k)) : 2.0F;
  return fminf(fmaxf(margin * fminf(fmaxf(by, 0.7F), 2.0F), 1e-4F), 0.5F);
}
__device__ inline std::uint32_t floor_below(std::uint32_t rank, float margin) {
  return rank <= 1 ? 1 : key(__uint_as_float(rank - 1) * (1 - margin)) + 1;
}

// Finds the k-th rank of units, one block for each: of those that `which` lists.
__global__ void __launch_bounds__(kSelectThreads)
    select_in_units(const float* memory, const UnitTile* tiles, const Piece* pieces, const UnitTiles* units,
                    const std::uint32_t* which, const std::uint32_t* ks, Bar* bars) {
  __shared__ SelectShared s;
  const std::uint32_t unit = which[blockIdx.x];
  const UnitTiles range = units[unit];
  const float factor = bars[unit].factor;
  std::uint32_t place = ks[unit];
  std::uint32_t prefix = 0;
  for (int round = 0; round < kSelectRounds; ++round) {
    for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) s.bins[i] = 0;
    __syncthreads();
    for (std::uint32_t t = 0; t < range.count; ++t) {
      count_ranks(memory, tiles[range.first + t], pieces, factor, round, prefix, s.bins);
    }
    __syncthreads();
    const uint2 found = find_bin_from_top(s.bins, place, s);
    prefix = prefix << (select_above(round) - select_shift(round)) | found.x;
    place = found.y;
  }
  if (threadIdx.x == 0) bars[unit] = {prefix, prefix == 0 ? 0 : place, factor};
}

// The same for large units, on which many blocks work: for each round one launch of count_in_parts() and one of
// find_in_large().
struct LargeUnit {
  std::uint32_t unit = 0;
  std::uint32_t prefix = 0;
  std::uint32_t place = 0;
};
struct LargePart {
  std::uint32_t large = 0;  // the number of the large unit
  std::uint32_t first = 0;  // tile
  std::uint32_t count = 0;
};

// bins: kBins for each large unit, all 0 before. One block for each part.
__global__ void __launch_bounds__(kSelectThreads)
    count_in_parts(const float* memory, const UnitTile* tiles, const Piece* pieces, const LargePart* parts,
                   const LargeUnit* larges, const Bar* bars, int round, std::uint32_t* bins) {
  __shared__ std::uint32_t mine[kBins];
  const LargePart part = parts[blockIdx.x];
  const LargeUnit large = larges[part.large];
  const float factor = bars[large.unit].factor;
  for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) mine[i] = 0;
  __syncthreads();
  for (std::uint32_t t = 0; t < part.count; ++t) {
    count_ranks(memory, tiles[part.first + t], pieces, factor, round, large.prefix, mine);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) {
    if (mine[i] != 0) atomicAdd(bins + std::size_t{part.large} * kBins + i, mine[i]);
  }
}

// One block for each large unit. Leaves all bins 0.
__global__ void __launch_bounds__(kSelectThreads)
    find_in_large(LargeUnit* larges, const std::uint32_t* ks, int round, std::uint32_t* bins, Bar* bars) {
  __shared__ SelectShared s;
  const LargeUnit large = larges[blockIdx.x];
  for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) {
    s.bins[i] = bins[std::size_t{blockIdx.x} * kBins + i];
    bins[std::size_t{blockIdx.x} * kBins + i] = 0;
  }
  __syncthreads();
  const uint2 found = find_bin_from_top(s.bins, round == 0 ? ks[large.unit] : large.place, s);
  if (threadIdx.x != 0) return;
  const std::uint32_t above = round == 0 ? 0 : large.prefix;
  const std::uint32_t prefix = above << (select_above(round) - select_shift(round)) | found.x;
  larges[blockIdx.x] = {large.unit, prefix, found.y};
  if (round == kSelectRounds - 1) bars[large.unit] = {prefix, prefix == 0 ? 0 : found.y, bars[large.unit].factor};
}

// The entries of each tile above the bar of its unit, and those with its rank if some of them are sent. One block for
// each tile.
__global__ void __launch_bounds__(kTileThreads)
    count_tiles(const float* memory, const UnitTile* tiles, const Piece* pieces, const Bar* bars, std::uint32_t* above,
                std::uint32_t* ties) {
  __shared__ std::uint32_t total;
  const UnitTile tile = tiles[blockIdx.x];
  const Bar bar = bars[tile.unit];
  std::uint32_t counts = 0;  // those above in the upper half, ties in the lower
  for (std::uint32_t offset = threadIdx.x; offset < tile.size; offset += kTileThreads) {
    const std::uint32_t rank = rank_of(memory[index_in(tile, pieces, offset)], bar.factor);
    counts += rank > bar.rank ? 1U << 16U : rank == bar.rank && bar.quota > 0 ? 1U : 0U;
  }
  counts = add_block(counts, total);
  if (threadIdx.x == 0) {
    above[blockIdx.x] = counts >> 16U;
    ties[blockIdx.x] = counts & 0xFFFFU;
  }
}

// How many ties of a tile are sent, if so many come before it in its unit.
__device__ inline std::uint32_t ties_sent(std::uint32_t ties, std::uint32_t before, std::uint32_t quota) {
  return before >= quota ? 0 : min(ties, quota - before);
}

// The entries that each tile sends. ties_before: of all tiles.
__global__ void count_sent(const UnitTile* tiles, std::uint32_t count, const UnitTiles* units, const Bar* bars,
                           const std::uint32_t* above, const std::uint32_t* ties, const std::uint32_t* ties_before,
                           std::uint32_t* sent) {
  for_each_entry(count, [=](std::size_t t) {
    const std::uint32_t unit = tiles[t].unit;
    const std::uint32_t before = ties_before[t] - ties_before[units[unit].first];
    sent[t] = above[t] + ties_sent(ties[t], before, bars[unit].quota);
  });
}

// Where the entries of each unit end, among all that are sent.
__global__ void find_ends(const UnitTiles* units, std::uint32_t count, const std::uint32_t* sent_before,
                          std::uint32_t* ends) {
  for_each_entry(count, [=](std::size_t u) { ends[u] = sent_before[units[u].first + units[u].count]; });
}

// Takes the entries out of the memory and writes them one after the other. One block for each tile.
__global__ void __launch_bounds__(kTileThreads)
    take_tiles(float* memory, const UnitTile* tiles, const Piece* pieces, const UnitTiles* units, const Bar* bars,
               const std::uint32_t* ties_before, const std::uint32_t* sent_before, std::uint32_t* indices,
               float* values) {
  __shared__ std::uint32_t counts[kSlices][2];
  if (sent_before[blockIdx.x] == sent_before[blockIdx.x + 1]) return;
  const UnitTile tile = tiles[blockIdx.x];
  const Bar bar = bars[tile.unit];
  std::uint32_t ranks[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::uint32_t offset = offset_of(row);
    ranks[row] = offset < tile.size ? rank_of(memory[index_in(tile, pieces, offset)], bar.factor) : 0;
  }
  // Ties are numbered within the unit.
  const std::uint32_t first_tie = ties_before[blockIdx.x] - ties_before[units[tile.unit].first];
  const std::uint32_t start = sent_before[blockIdx.x];
  for_each_winner(ranks, bar.rank, bar.quota, first_tie, counts, [&](int row, std::uint32_t number) {
    const std::size_t at = index_in(tile, pieces, offset_of(row));
    const float value = memory[at];
    indices[start + number] = static_cast<std::uint32_t>(at);
    values[start + number] = value;
    memory[at] = 0;
  });
}

}  // namespace sparsewire::cuda
