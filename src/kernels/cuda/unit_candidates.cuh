// The k largest entries of each of many units, in one pass and a look at few entries: as on the processor, the k-th
// entry of a unit is hardly another one than in the step before. So each unit has a *floor*, slightly below the last
// k-th rank. What reaches it is gathered, and chosen from.
//
// If there are too few or too many, nothing has been taken out, and unit_select.cuh does it.
#pragma once

#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

struct CandidateArguments {
  float* memory;
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
  std::uint32_t* failed;  // becomes an Outcome
  const unsigned long long* bad;
  std::uint32_t* out_indices;
  float* out_values;
  double* sent_norms;  // of each tile
};

// Writes the candidates, tile after tile. One block for each tile.
__global__ void __launch_bounds__(kTileThreads) gather_candidates(CandidateArguments a) {
  __shared__ std::uint32_t counts[kSlices];
  std::uint32_t to = a.before[blockIdx.x];
  const std::uint32_t end = a.before[blockIdx.x + 1];
  if (to == end || end > a.room) return;
  const UnitTile tile = a.tiles[blockIdx.x];
  const std::uint32_t least = a.floors[tile.unit];
  const float factor = a.bars[tile.unit].factor;
  const unsigned lane = threadIdx.x % 32;
  float number[kRows];
  std::uint32_t is_candidate = 0;  // rows
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    number[row] = offset_of(row) < tile.size ? a.memory[index_in(tile, a.pieces, offset_of(row))] : 0;
    is_candidate |= (rank_of(number[row], factor) >= least ? 1U : 0U) << static_cast<unsigned>(row);
  }
  const std::uint32_t count = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(is_candidate)));
  if (lane == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (count == 0) return;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) to += counts[w];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const bool mine = (is_candidate >> static_cast<unsigned>(row) & 1U) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (mine) {
      const std::uint32_t at = to + static_cast<std::uint32_t>(__popc(lanes & ((1U << lane) - 1)));
      a.indices[at] = static_cast<std::uint32_t>(index_in(tile, a.pieces, offset_of(row)));
      a.values[at] = number[row];
      a.offsets[at] = static_cast<std::uint16_t>(offset_of(row));
    }
    to += static_cast<std::uint32_t>(__popc(lanes));
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
      const std::uint32_t bin = counts ? rank >> shift & ((1U << (above - shift)) - 1) : kBins;
      const unsigned same = __match_any_sync(kAllLanes, bin);
      if (counts && (same & ((1U << threadIdx.x % 32) - 1)) == 0) {
        atomicAdd(s.bins + bin, static_cast<std::uint32_t>(__popc(same)));
      }
    }
    __syncthreads();
    const uint2 found = find_bin_from_top(s.bins, place, s);
    prefix = prefix << (above - shift) | found.x;
    place = found.y;
  }
  return {prefix, place, factor};
}

// The floor of the next step. It affects the speed only. One unit with too few candidates costs all of them a search,
// so more are wanted than on the processor, and the margin changes slowly.
__device__ inline void lower_floor(std::uint32_t n, std::uint32_t k, std::uint32_t kth, std::uint32_t& floor,
                                   float& margin) {
  const auto few = static_cast<float>(k);
  const float wanted = fmaxf(0.2F * few, 6 * sqrtf(few) + 12);  // beyond k
  const float by = n > k ? sqrtf(wanted / static_cast<float>(n - k)) : 2.0F;
  margin = fminf(fmaxf(margin * fminf(fmaxf(by, 0.7F), 2.0F), 1e-4F), 0.5F);
  const std::uint32_t last = n > k ? kth : floor;
  floor = last <= 1 ? 1 : key(__uint_as_float(last - 1) * (1 - margin)) + 1;
}

// Chooses the winners of each unit and writes them to its slots; takes nothing out yet. One block for each unit.
__global__ void __launch_bounds__(kSelectThreads) choose_candidates(CandidateArguments a) {
  __shared__ SelectShared s;
  const std::uint32_t unit = blockIdx.x;
  const UnitTiles range = a.units[unit];
  if (a.before[a.tile_count] > a.room) {
    if (unit == 0 && threadIdx.x == 0) atomicOr(a.failed, kNoRoom);
    return;
  }
  const std::uint32_t begin = a.before[range.first];
  const std::uint32_t n = a.before[range.first + range.count] - begin;
  const std::uint32_t k = a.ks[unit];
  const float factor = a.bars[unit].factor;
  std::uint32_t floor = a.floors[unit];
  if (n < k && floor > 1) {
    if (threadIdx.x == 0) atomicOr(a.failed, kTooFew);
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
  float margin = a.margins[unit];
  lower_floor(n, k, bar.rank, floor, margin);
  a.floors[unit] = floor;
  a.margins[unit] = margin;
}

// Takes the winners out of the memory, and adds up their squares. One warp for each tile: each square at its slice and
// lane, those of one lane in ascending order.
__global__ void __launch_bounds__(kTileThreads) take_candidates(CandidateArguments a) {
  __shared__ double all_squares[kTileThreads / 32][kSlices * 32];
  if (*a.failed != 0 || *a.bad != ~0ULL) return;
  const unsigned lane = threadIdx.x % 32;
  double* const squares = all_squares[threadIdx.x / 32];
  const std::uint32_t tile = blockIdx.x * (kTileThreads / 32) + threadIdx.x / 32;
  if (tile >= a.tile_count) return;
  const std::uint32_t end = a.before[tile + 1];
  std::uint32_t at = a.before[tile];
  double sum[kSlices] = {};
  if (at < end) {
#pragma unroll
    for (unsigned i = 0; i < kSlices; ++i) squares[i * 32 + lane] = 0;
    __syncwarp();
    for (; at < end; at += 32) {
      const std::uint32_t i = at + lane;
      const bool wins = i < end && a.wins[i] != 0;
      const unsigned offset = wins ? a.offsets[i] : 0;
      const double value = wins ? static_cast<double>(a.values[i]) : 0;
      if (wins) a.memory[a.indices[i]] = 0;
      const unsigned place = wins ? offset / static_cast<unsigned>(kSlice) * 32 + offset % 32 : ~lane;
      const unsigned same = __match_any_sync(kAllLanes, place);
      const int turn = __popc(same & ((1U << lane) - 1));
      for (int t = 0; __any_sync(kAllLanes, wins && t <= turn); ++t) {
        if (wins && t == turn) squares[place] += value * value;
        __syncwarp();
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kSlices; ++i) sum[i] = squares[i * 32 + lane];
#pragma unroll
    for (unsigned i = 0; i < kSlices; ++i) sum[i] = add_lanes<32>(sum[i]);
  }
  if (lane == 0) {
    a.sent_norms[tile] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  }
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
    const std::uint32_t kth = units[u].count == 1 ? 0 : bars[u].rank;  // a small unit: all are candidates
    floors[u] = kth <= 1 ? 1 : key(__uint_as_float(kth - 1) * (1 - margins[u])) + 1;
  });
}

}  // namespace sparsewire::cuda
