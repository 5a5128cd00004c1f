// Units of one tile each, such as chunks of 4096: a step is one launch. A block adds the gradient to its unit, finds
// the k-th entry, and takes the winners out.
//
// The k-th entry is guessed from the step before: what reaches a floor below it is written to shared memory, where each
// candidate counts the better ones. If there are fewer than k, or many, the k-th is searched in registers.
#pragma once

#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

struct TileUnitsArguments {
  float* memory;
  const void* gradient;
  Factors by;
  const UnitTile* tiles;  // one for each unit
  const Piece* pieces;
  const Bar* bars;  // for the factors
  const std::uint32_t* ks;
  const std::uint32_t* slots;  // where the winners of each unit are written; there is room for k
  std::uint32_t* floors;       // of each unit, a rank; 0: there is no guess
  float* margins;              // of the floors below the last k-th
  double* norms;
  double* sent_norms;
  TileList* lists;        // offset ~0: the tile has a sum that is not finite, and its entries are back
  Control* control;       // for the failure
  std::uint32_t* counts;  // winners of each unit
  std::uint32_t* indices;
  float* values;
};

inline constexpr std::uint32_t kFewCandidates = 512;

struct TileUnitsShared {
  double slices[2][kSlices];
  std::uint32_t counts[2][kSlices];
  std::uint32_t ends[kSlices][2];
  std::uint32_t is_sent[kTile / 32];  // bits
  // The candidates, and how many winners each 32 of them have.
  alignas(16) std::uint32_t ranks[kFewCandidates + 4];
  float values[kFewCandidates];
  std::uint16_t offsets[kFewCandidates];
  std::uint32_t winners[kFewCandidates / 32];
  std::uint32_t kth;
};

// How many ranks of the block are at least `least`. The `counts` of two calls in turn must differ.
__device__ inline std::uint32_t count_from(const std::uint32_t (&ranks)[kRows], std::uint32_t least,
                                           std::uint32_t (&counts)[kSlices]) {
  std::uint32_t count = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) count += ranks[row] >= least ? 1 : 0;
  count = __reduce_add_sync(kAllLanes, count);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  count = 0;
#pragma unroll
  for (unsigned w = 0; w < kSlices; ++w) count += counts[w];
  return count;
}

// The bar that k entries of the block reach, or all that are not zero if they are fewer.
__device__ inline Bar find_bar(const std::uint32_t (&ranks)[kRows], std::uint32_t k,
                               std::uint32_t (&counts)[2][kSlices]) {
  if (count_from(ranks, 1, counts[1]) <= k) return {};
  std::uint32_t low = 1;  // more than k are at or above it
  std::uint32_t high = kInfinityKey + 1;
  std::uint32_t above = 0;  // that many are at or above `high`, fewer than k
  for (unsigned turn = 0; high - low > 1; turn ^= 1U) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::uint32_t count = count_from(ranks, middle, counts[turn]);
    if (count == k) return {middle - 1, 0, 1};
    if (count > k) {
      low = middle;
    } else {
      high = middle;
      above = count;
    }
  }
  return {low, k - above, 1};
}

// One unit, by the threads of a block. kWhole: it has 4096 consecutive entries.
template <class T, bool kWhole>
class TileUnit {
 public:
  __device__ TileUnit(const TileUnitsArguments& a, const UnitTile& tile, TileUnitsShared& s)
      : a_(a), tile_(tile), s_(s), factor_(a.bars[blockIdx.x].factor), k_(a.ks[blockIdx.x]) {}

  __device__ __forceinline__ void sift() {
    const std::uint32_t floor = a_.floors[blockIdx.x];
    load();
    std::uint32_t largest = 0;
    double lane_sum = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      largest = max(largest, key(sum_[row]));
      lane_sum += static_cast<double>(sum_[row]) * static_cast<double>(sum_[row]);
      candidates_ |= (floor > 0 && rank_of(sum_[row], factor_) >= floor ? 1U : 0U) << static_cast<unsigned>(row);
    }
    if (threadIdx.x < kTile / 32) s_.is_sent[threadIdx.x] = 0;
    const std::uint32_t in_warp = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(candidates_)));
    const double slice = add_lanes<32>(lane_sum);
    if (threadIdx.x % 32 == 0) {
      s_.counts[0][threadIdx.x / 32] = in_warp;
      s_.slices[0][threadIdx.x / 32] = slice;
    }
    const bool is_bad = __syncthreads_or(largest >= kInfinityKey) != 0;
    if (threadIdx.x < 32) {
      const double norm = add_lanes<kSlices>(threadIdx.x < kSlices ? s_.slices[0][threadIdx.x] : 0);
      if (threadIdx.x == 0) a_.norms[blockIdx.x] = norm;
    }
    if (threadIdx.x == 0) a_.lists[blockIdx.x] = {is_bad ? ~0U : 0U, 0};
    if (is_bad) return bring_back();

    std::uint32_t n = 0;
    std::uint32_t before = 0;
#pragma unroll
    for (unsigned w = 0; w < kSlices; ++w) {
      const std::uint32_t one = s_.counts[0][w];
      before += w < threadIdx.x / 32 ? one : 0;
      n += one;
    }
    // The same for all threads.
    const bool has_few = n >= k_ && n <= kFewCandidates;
    if (has_few) {
      choose_few(n, before);
    } else {
      choose_any();
    }
    const double sent_norm = add_tile(sent_sum_, s_.slices[1]);
    if (threadIdx.x != 0) return;
    a_.sent_norms[blockIdx.x] = sent_norm;
    a_.counts[blockIdx.x] = sent_;
    const float margin = floor == 0 ? 0.12F : next_margin(a_.margins[blockIdx.x], n, k_);
    a_.margins[blockIdx.x] = margin;
    a_.floors[blockIdx.x] = floor_below(s_.kth, margin);
  }

 private:
  __device__ __forceinline__ bool inside(int row) const { return kWhole || offset_of(row) < tile_.size; }
  __device__ __forceinline__ std::size_t index(std::uint32_t offset) const {
    return kWhole ? tile_.begin + offset : index_in(tile_, a_.pieces, min(offset, tile_.size - 1));
  }

  __device__ __forceinline__ void load() {
#pragma unroll
    for (int row = 0; row < kRows; ++row) sum_[row] = a_.memory[index(offset_of(row))];
    if constexpr (kHasGradient) {
      float added[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) added[row] = gradient_at(index(offset_of(row)));
#pragma unroll
      for (int row = 0; row < kRows; ++row) sum_[row] = accumulated(sum_[row], added[row], a_.by);
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) sum_[row] = inside(row) ? sum_[row] : 0;
  }
  __device__ __forceinline__ float gradient_at(std::size_t at) const {
    if constexpr (kHasGradient) return number(static_cast<const T*>(a_.gradient), at);
    return 0;
  }

  // As kernels::make_round_trip().
  __device__ __forceinline__ void bring_back() {
    if (threadIdx.x == 0) a_.counts[blockIdx.x] = 0;
    if constexpr (kHasGradient) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (!inside(row)) continue;
        const std::size_t at = index(offset_of(row));
        if (key(sum_[row]) >= kInfinityKey) {
          atomicMin(&a_.control->failure.bad, static_cast<unsigned long long>(at));
        } else {
          a_.memory[at] = restored(sum_[row], gradient_at(at), a_.by);
        }
      }
    }
  }

  // The k best of n candidates, of which `before` are those of the warps before this one.
  __device__ __forceinline__ void choose_few(std::uint32_t n, std::uint32_t before) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const bool mine = (candidates_ >> static_cast<unsigned>(row) & 1U) != 0;
      const unsigned lanes = __ballot_sync(kAllLanes, mine);
      if (mine) {
        const std::uint32_t to = before + count_before(lanes);
        s_.ranks[to] = rank_of(sum_[row], factor_);
        s_.values[to] = sum_[row];
        s_.offsets[to] = static_cast<std::uint16_t>(offset_of(row));
      } else if (kHasGradient && inside(row)) {
        a_.memory[index(offset_of(row))] = sum_[row];
      }
      before += static_cast<std::uint32_t>(__popc(lanes));
    }
    if (threadIdx.x < 4) s_.ranks[n + threadIdx.x] = 0;  // the last four that are read at a time
    __syncthreads();
    constexpr unsigned kTurns = kFewCandidates / kTileThreads;
    bool wins[kTurns];
#pragma unroll
    for (unsigned turn = 0; turn < kTurns; ++turn) {
      const std::uint32_t i = turn * kTileThreads + threadIdx.x;
      wins[turn] = false;
      if (i - threadIdx.x % 32 >= n) continue;  // the whole warp
      const std::uint32_t rank = i < n ? s_.ranks[i] : ~0U;
      const std::uint32_t better = i < n ? count_better(i, rank, n) : ~0U;
      wins[turn] = better < k_;
      const unsigned lanes = __ballot_sync(kAllLanes, wins[turn]);
      if (threadIdx.x % 32 == 0) s_.winners[i / 32] = static_cast<std::uint32_t>(__popc(lanes));
      if (better == k_ - 1) s_.kth = rank;
      if (i >= n) continue;
      const std::uint32_t offset = s_.offsets[i];
      if (wins[turn]) atomicOr(s_.is_sent + offset / 32, 1U << offset % 32);
      if (kHasGradient || wins[turn]) a_.memory[index(offset)] = wins[turn] ? 0 : s_.values[i];
    }
    __syncthreads();
    const std::uint32_t start = a_.slots[blockIdx.x];
#pragma unroll
    for (unsigned turn = 0; turn < kTurns; ++turn) {
      const std::uint32_t i = turn * kTileThreads + threadIdx.x;
      if (i - threadIdx.x % 32 >= n) continue;
      std::uint32_t to = start + count_before(__ballot_sync(kAllLanes, wins[turn]));
      for (std::uint32_t w = 0; w < i / 32; ++w) to += s_.winners[w];
      if (!wins[turn]) continue;
      a_.indices[to] = static_cast<std::uint32_t>(index(s_.offsets[i]));
      a_.values[to] = s_.values[i];
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if ((candidates_ >> static_cast<unsigned>(row) & 1U) == 0) continue;
      const std::uint32_t offset = offset_of(row);
      if ((s_.is_sent[offset / 32] >> offset % 32 & 1U) != 0) add_sent(sum_[row]);
    }
    sent_ = k_;
  }

  // Candidates that come before number i: those with a higher rank, and of equal ones those with a lower index.
  __device__ __forceinline__ std::uint32_t count_better(std::uint32_t i, std::uint32_t rank, std::uint32_t n) const {
    std::uint32_t better = 0;
    for (std::uint32_t j = 0; j < n; j += 4) {
      const uint4 others = *reinterpret_cast<const uint4*>(s_.ranks + j);
      better += others.x + (j < i ? 1 : 0) > rank ? 1 : 0;
      better += others.y + (j + 1 < i ? 1 : 0) > rank ? 1 : 0;
      better += others.z + (j + 2 < i ? 1 : 0) > rank ? 1 : 0;
      better += others.w + (j + 3 < i ? 1 : 0) > rank ? 1 : 0;
    }
    return better;
  }

  __device__ __forceinline__ void choose_any() {
    std::uint32_t ranks[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) ranks[row] = rank_of(sum_[row], factor_);
    const Bar bar = find_bar(ranks, k_, s_.counts);
    const std::uint32_t start = a_.slots[blockIdx.x];
    std::uint32_t sent = 0;  // rows
    sent_ = bar.quota;
    sent_ += for_each_winner(ranks, bar.rank, bar.quota, 0, s_.ends, [&](int row, std::uint32_t number) {
      a_.indices[start + number] = static_cast<std::uint32_t>(index(offset_of(row)));
      a_.values[start + number] = sum_[row];
      add_sent(sum_[row]);
      sent |= 1U << static_cast<unsigned>(row);
    });
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const bool wins = (sent >> static_cast<unsigned>(row) & 1U) != 0;
      if ((kHasGradient || wins) && inside(row)) a_.memory[index(offset_of(row))] = wins ? 0 : sum_[row];
    }
    if (threadIdx.x == 0) s_.kth = bar.rank;
  }

  __device__ __forceinline__ void add_sent(float value) {
    sent_sum_ += static_cast<double>(value) * static_cast<double>(value);
  }

  static constexpr bool kHasGradient = !std::is_void_v<T>;

  const TileUnitsArguments& a_;
  const UnitTile& tile_;
  TileUnitsShared& s_;
  float factor_;
  std::uint32_t k_;
  float sum_[kRows];
  std::uint32_t candidates_ = 0;  // rows
  std::uint32_t sent_ = 0;        // entries of the unit
  double sent_sum_ = 0;           // of the squares of the thread's entries that are sent
};

// Not inlined: it needs more registers, and they would be missing elsewhere.
template <class T>
__device__ __noinline__ void sift_part_of_tile(const TileUnitsArguments& a, const UnitTile& tile, TileUnitsShared& s) {
  TileUnit<T, false>(a, tile, s).sift();
}

template <class T>
__global__ void __launch_bounds__(kTileThreads, 3) sift_tile_units(const __grid_constant__ TileUnitsArguments a) {
  __shared__ TileUnitsShared s;
  const UnitTile tile = a.tiles[blockIdx.x];
  if (tile.size == kTile && tile.pieces == 1) {
    TileUnit<T, true>(a, tile, s).sift();
  } else {
    sift_part_of_tile<T>(a, tile, s);
  }
}

// Puts the winners back, after a step that failed. One thread for each unit.
__global__ void put_tile_units_back(float* memory, std::uint32_t units, const std::uint32_t* slots,
                                    const std::uint32_t* counts, const std::uint32_t* indices, const float* values) {
  for_each_entry(units, [=](std::size_t u) {
    for (std::uint32_t i = slots[u]; i < slots[u] + counts[u]; ++i) memory[indices[i]] = values[i];
  });
}

}  // namespace sparsewire::cuda
