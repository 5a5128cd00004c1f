// The k largest entries of each of many units, in one pass and a look at few entries: as on the processor, the k-th
// entry of a unit is hardly another one than in the step before. So each unit has a *floor*, slightly below the last
// k-th rank. What reaches it is moved to the arenas by the pass, and chosen from; the others go back.
//
// If there are too few or too many, all have to be put back, and unit_select.cuh does it.
#pragma once

#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

struct CandidateArguments {
  float* memory;
  Control* control;
  const TileList* lists;  // in the arenas
  const std::uint32_t* arena_indices;
  const float* arena_values;
  const UnitTile* tiles;
  std::uint32_t tile_count;
  const Piece* pieces;
  const UnitTiles* units;
  const std::uint32_t* ks;     // 0: all candidates of the unit win
  const std::uint32_t* slots;  // where the winners of each unit are written
  Bar* bars;
  std::uint32_t* floors;        // ranks
  float* margins;               // of the floors below the last k-th
  const std::uint32_t* before;  // candidates before those of each tile, and all
  std::uint32_t room;
  std::uint32_t* indices;  // of the candidates
  float* values;
  std::uint16_t* offsets;  // in their tiles
  std::uint8_t* wins;
  std::uint32_t* counts;  // winners of each unit
  std::uint32_t* out_indices;
  float* out_values;
  double* sent_norms;  // of each tile
};

// Writes the candidates one tile after the other. One warp for each tile.
__global__ void __launch_bounds__(kTileThreads) gather_candidates(CandidateArguments a) {
  const std::uint32_t number = blockIdx.x * (kTileThreads / 32) + threadIdx.x / 32;
  if (number >= a.tile_count) return;
  const std::uint32_t to = a.before[number];
  if (to == a.before[number + 1] || a.before[number + 1] > a.room) return;
  const TileList list = a.lists[number];
  const UnitTile tile = a.tiles[number];
  for (std::uint32_t i = threadIdx.x % 32; i < list.count; i += 32) {
    const std::uint32_t index = a.arena_indices[list.offset + i];
    a.indices[to + i] = index;
    a.values[to + i] = a.arena_values[list.offset + i];
    a.offsets[to + i] = static_cast<std::uint16_t>(offset_in(tile, a.pieces, index));
  }
}

// The k-th rank of a unit's candidates. By all threads of the block. REQUIRES: more than k.
__device__ inline Bar find_bar_of(const float* values, std::uint32_t n, std::uint32_t k, float factor,
                                  SelectShared& s) {
  std::uint32_t place = k;
  std::uint32_t prefix = 0;
  for (int round = 0; round < kSelectRounds; ++round) {
    const unsigned above = select_above(round);
    const unsigned shift = select_shift(round);
    for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) s.bins[i] = 0;
    __syncthreads();
    for (std::uint32_t at = 0; at < n; at += kSelectThreads) {
      const bool is_there = at + threadIdx.x < n;
      const std::uint32_t rank = is_there ? rank_of(values[at + threadIdx.x], factor) : 0;
      const bool counts = is_there && (round == 0 || rank >> above == prefix);
      count_in_bin(s.bins, rank >> shift & ((1U << (above - shift)) - 1), counts);
    }
    __syncthreads();
    const uint2 found = find_bin_from_top(s.bins, place, s);
    prefix = prefix << (above - shift) | found.x;
    place = found.y;
  }
  return {prefix, place, factor};
}

// Chooses the winners of each unit and writes them to its slots; takes nothing out yet. One block for each unit.
__global__ void __launch_bounds__(kSelectThreads) choose_candidates(CandidateArguments a) {
  __shared__ SelectShared s;
  const std::uint32_t unit = blockIdx.x;
  const UnitTiles range = a.units[unit];
  if (a.before[a.tile_count] > a.room) {
    if (unit == 0 && threadIdx.x == 0) atomicOr(&a.control->failure.outcome, kNoRoom);
    return;
  }
  const std::uint32_t begin = a.before[range.first];
  const std::uint32_t n = a.before[range.first + range.count] - begin;
  const std::uint32_t k = a.ks[unit];
  const float factor = a.bars[unit].factor;
  const std::uint32_t floor = a.floors[unit];
  if (n < k && floor > 1) {
    if (threadIdx.x == 0) atomicOr(&a.control->failure.outcome, kTooFew);
    return;
  }
  Bar bar{0, 0, factor};
  if (k > 0 && n > k) bar = find_bar_of(a.values + begin, n, k, factor, s);
  std::uint32_t above = 0;
  std::uint32_t ties = 0;
  const std::uint32_t slot = a.slots[unit];
  for (std::uint32_t at = 0; at < n; at += kSelectThreads) {
    const std::uint32_t i = begin + at + threadIdx.x;
    const bool is_there = at + threadIdx.x < n;
    const float value = is_there ? a.values[i] : 0;
    const std::uint32_t rank = rank_of(value, factor);
    const bool is_above = is_there && rank > bar.rank;
    const bool is_tie = is_there && rank == bar.rank && bar.quota > 0;
    // Ties in the upper half.
    std::uint32_t lower = 0;
    std::uint32_t all = 0;
    SelectScan(s.scan).ExclusiveSum((is_above ? 1U : 0U) + (is_tie ? 1U << 16U : 0U), lower, all);
    const std::uint32_t tie = ties + (lower >> 16U);
    const bool wins = is_above || (is_tie && tie < bar.quota);
    if (wins) {
      const std::uint32_t to = slot + above + (lower & 0xFFFFU) + min(tie, bar.quota);
      a.out_indices[to] = a.indices[i];
      a.out_values[to] = value;
    }
    if (is_there) a.wins[i] = wins ? 1 : 0;
    above += all & 0xFFFFU;
    ties += all >> 16U;
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  a.counts[unit] = above + min(ties, bar.quota);
  if (k == 0) return;
  a.bars[unit] = bar;
  if (range.count == 1) return;  // its floor stays
  a.margins[unit] = next_margin(a.margins[unit], n, k);
  a.floors[unit] = floor_below(n > k ? bar.rank : floor, a.margins[unit]);
}

// Puts the others back into the memory, and adds up the squares of the winners. One warp for each tile.
__global__ void __launch_bounds__(kTileThreads) settle_candidates(CandidateArguments a) {
  __shared__ double squares[kTileThreads / 32][kSlices * 32];
  if (a.control->failure.outcome != kDone) return;
  const std::uint32_t tile = blockIdx.x * (kTileThreads / 32) + threadIdx.x / 32;
  if (tile >= a.tile_count) return;
  const double sum = square_few(a.before[tile], a.before[tile + 1], squares[threadIdx.x / 32], [&](std::uint32_t i) {
    const MaybeSent one{a.wins[i] != 0, a.offsets[i], a.values[i]};
    if (!one.is_sent) a.memory[a.indices[i]] = one.value;
    return one;
  });
  if (threadIdx.x % 32 == 0) a.sent_norms[tile] = sum;
}

// After unit_select.cuh has found the bars: where the floors of the next step are.
__global__ void set_floors(const Bar* bars, const std::uint32_t* ks, const UnitTiles* units, std::uint32_t count,
                           std::uint32_t* floors, float* margins) {
  for_each_entry(count, [=](std::size_t u) {
    if (ks[u] == 0) {
      floors[u] = bars[u].rank + 1;  // all above a threshold are candidates
      return;
    }
    margins[u] = 0.02F;
    floors[u] = floor_below(units[u].count == 1 ? 0 : bars[u].rank, margins[u]);  // a small unit: all are candidates
  });
}

}  // namespace sparsewire::cuda
