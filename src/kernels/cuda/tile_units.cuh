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

inline constexpr std::uint32_t kFewCandidates = kPassThreads;
inline constexpr int kHalfRows = kRows / 2;  // two warps share a slice, as in the pass

struct TileUnitsShared {
  double first_half[kSlices][32];
  double slices[kSlices];
  std::uint32_t counts[2][kPassWarps];
  std::uint32_t ends[kPassWarps][2];
  // The candidates, and how many winners each warp has among them.
  alignas(16) std::uint32_t ranks[kFewCandidates + 4];
  float values[kFewCandidates];
  std::uint16_t offsets[kFewCandidates];
  std::uint8_t wins[kFewCandidates];
  std::uint32_t winners[kPassWarps];
  double squares[kSlices * 32];
  std::uint32_t kth;
};

// How many ranks of the block are at least `least`. The `counts` of two calls in turn must differ.
__device__ inline std::uint32_t count_from(const std::uint32_t (&ranks)[kHalfRows], std::uint32_t least,
                                           std::uint32_t (&counts)[kPassWarps]) {
  std::uint32_t count = 0;
#pragma unroll
  for (int row = 0; row < kHalfRows; ++row) count += ranks[row] >= least ? 1 : 0;
  count = __reduce_add_sync(kAllLanes, count);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, threadIdx.x % 32 < kPassWarps ? counts[threadIdx.x % 32] : 0);
}

// The bar that k entries of the block reach, or all that are not zero if they are fewer.
__device__ inline Bar find_bar(const std::uint32_t (&ranks)[kHalfRows], std::uint32_t k,
                               std::uint32_t (&counts)[2][kPassWarps]) {
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
    start_ = a_.slots[blockIdx.x];
    float margin = threadIdx.x == 0 ? a_.margins[blockIdx.x] : 0;
    load();
    std::uint32_t largest = 0;
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) {
      largest = max(largest, key(sum_[row]));
      candidates_ |= (rank_of(sum_[row], factor_) >= floor ? 1U : 0U) << static_cast<unsigned>(row);
    }
    if (floor == 0) candidates_ = 0;
    const std::uint32_t in_warp = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(candidates_)));
    if (threadIdx.x % 32 == 0) s_.counts[0][warp()] = in_warp;
    if (warp() % 2 == 0) s_.first_half[warp() / 2][threadIdx.x % 32] = add_squares(0, ~0U);
    const bool is_bad = __syncthreads_or(largest >= kInfinityKey) != 0;
    if (threadIdx.x == 0) a_.lists[blockIdx.x] = {is_bad ? ~0U : 0U, 0};
    if (is_bad) return bring_back();
    add_second_half(~0U);

    const std::uint32_t count = threadIdx.x % 32 < kPassWarps ? s_.counts[0][threadIdx.x % 32] : 0;
    const std::uint32_t n = __reduce_add_sync(kAllLanes, count);
    const std::uint32_t before = __reduce_add_sync(kAllLanes, threadIdx.x % 32 < warp() ? count : 0);
    // The same for all threads.
    if (n >= k_ && n <= kFewCandidates) {
      choose_few(n, before);
    } else {
      TileUnit copy = *this;  // only the copy has to be in memory for the call
      copy.choose_any();
      sent_ = copy.sent_;
    }
    if (threadIdx.x != 0) return;
    a_.counts[blockIdx.x] = sent_;
    margin = floor == 0 ? 0.12F : next_margin(margin, n, k_);
    a_.margins[blockIdx.x] = margin;
    a_.floors[blockIdx.x] = floor_below(s_.kth, margin);
  }

 private:
  __device__ static unsigned warp() { return threadIdx.x / 32; }
  __device__ __forceinline__ static std::uint32_t offset(int row) {
    return first_of_thread() + static_cast<unsigned>(row) * 32;
  }
  __device__ __forceinline__ bool inside(int row) const { return kWhole || offset(row) < tile_.size; }
  __device__ __forceinline__ std::size_t index(std::uint32_t at) const {
    return kWhole ? tile_.begin + at : index_in(tile_, a_.pieces, min(at, tile_.size - 1));
  }

  __device__ __forceinline__ void load() {
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) sum_[row] = a_.memory[index(offset(row))];
    if constexpr (kHasGradient) {
      float added[kHalfRows];
#pragma unroll
      for (int row = 0; row < kHalfRows; ++row) added[row] = gradient_at(index(offset(row)));
#pragma unroll
      for (int row = 0; row < kHalfRows; ++row) sum_[row] = accumulated(sum_[row], added[row], a_.by);
    }
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) sum_[row] = inside(row) ? sum_[row] : 0;
  }
  __device__ __forceinline__ float gradient_at(std::size_t at) const {
    if constexpr (kHasGradient) return number(static_cast<const T*>(a_.gradient), at);
    return 0;
  }

  // The squares of this thread's entries in the given rows, added to what its lane has so far.
  __device__ __forceinline__ double add_squares(double lane_sum, std::uint32_t rows) const {
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) {
      const bool counts = (rows >> static_cast<unsigned>(row) & 1U) != 0;
      const double one = counts ? static_cast<double>(sum_[row]) : 0;
      lane_sum += one * one;
    }
    return lane_sum;
  }
  // After the first halves of the slices were added up: the sums of the slices. Barriers come before and after it.
  __device__ __forceinline__ void add_second_half(std::uint32_t rows) {
    if (warp() % 2 == 0) return;
    const double slice = add_lanes<32>(add_squares(s_.first_half[warp() / 2][threadIdx.x % 32], rows));
    if (threadIdx.x % 32 == 0) s_.slices[warp() / 2] = slice;
  }
  __device__ __forceinline__ void write_norm(double* to) const {
    if (warp() != 0) return;
    const double norm = add_lanes<kSlices>(threadIdx.x < kSlices ? s_.slices[threadIdx.x] : 0);
    if (threadIdx.x == 0) *to = norm;
  }

  // As kernels::make_round_trip().
  __device__ __forceinline__ void bring_back() {
    if (threadIdx.x == 0) a_.counts[blockIdx.x] = 0;
    if constexpr (kHasGradient) {
#pragma unroll
      for (int row = 0; row < kHalfRows; ++row) {
        if (!inside(row)) continue;
        const std::size_t at = index(offset(row));
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
    for (int row = 0; row < kHalfRows; ++row) {
      const bool mine = (candidates_ >> static_cast<unsigned>(row) & 1U) != 0;
      const unsigned lanes = __ballot_sync(kAllLanes, mine);
      if (mine) {
        const std::uint32_t to = before + count_before(lanes);
        s_.ranks[to] = rank_of(sum_[row], factor_);
        s_.values[to] = sum_[row];
        s_.offsets[to] = static_cast<std::uint16_t>(offset(row));
      } else if (kHasGradient && inside(row)) {
        a_.memory[index(offset(row))] = sum_[row];
      }
      before += static_cast<std::uint32_t>(__popc(lanes));
    }
    if (threadIdx.x < 4) s_.ranks[n + threadIdx.x] = 0;  // the last four that are read at a time
    __syncthreads();
    write_norm(a_.norms + blockIdx.x);
    const std::uint32_t i = threadIdx.x;
    const bool has_any = warp() * 32 < n;  // the warp
    bool wins = false;
    unsigned lanes = 0;
    if (has_any) {
      const std::uint32_t better = i < n ? count_better(i, s_.ranks[i], n) : ~0U;
      wins = better < k_;
      lanes = __ballot_sync(kAllLanes, wins);
      if (threadIdx.x % 32 == 0) s_.winners[warp()] = static_cast<std::uint32_t>(__popc(lanes));
      if (better == k_ - 1) s_.kth = s_.ranks[i];
      s_.wins[i] = wins ? 1 : 0;
      if (i < n && (kHasGradient || wins)) a_.memory[index(s_.offsets[i])] = wins ? 0 : s_.values[i];
    }
    __syncthreads();
    if (wins) {
      std::uint32_t to = start_ + count_before(lanes);
      for (unsigned w = 0; w < warp(); ++w) to += s_.winners[w];
      a_.indices[to] = static_cast<std::uint32_t>(index(s_.offsets[i]));
      a_.values[to] = s_.values[i];
    }
    if (warp() == kPassWarps - 1) {  // which has no candidates, mostly
      const double norm = square_few(0, n, s_.squares, [&](std::uint32_t at) -> MaybeSent {
        return {s_.wins[at] != 0, s_.offsets[at], s_.values[at]};
      });
      if (threadIdx.x % 32 == 0) a_.sent_norms[blockIdx.x] = norm;
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

  // Not inlined in the fast way: the registers that it needs would be missing there.
  __device__ __noinline__ void choose_any() {
    std::uint32_t ranks[kHalfRows];
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) ranks[row] = rank_of(sum_[row], factor_);
    const Bar bar = find_bar(ranks, k_, s_.counts);
    write_norm(a_.norms + blockIdx.x);
    std::uint32_t sent = 0;  // rows
    sent_ = bar.quota;
    sent_ += for_each_winner(ranks, bar.rank, bar.quota, 0, s_.ends, [&](int row, std::uint32_t number) {
      a_.indices[start_ + number] = static_cast<std::uint32_t>(index(offset(row)));
      a_.values[start_ + number] = sum_[row];
      sent |= 1U << static_cast<unsigned>(row);
    });
#pragma unroll
    for (int row = 0; row < kHalfRows; ++row) {
      const bool wins = (sent >> static_cast<unsigned>(row) & 1U) != 0;
      if ((kHasGradient || wins) && inside(row)) a_.memory[index(offset(row))] = wins ? 0 : sum_[row];
    }
    if (threadIdx.x == 0) s_.kth = bar.rank;
    if (warp() % 2 == 0) s_.first_half[warp() / 2][threadIdx.x % 32] = add_squares(0, sent);
    __syncthreads();
    add_second_half(sent);
    __syncthreads();
    write_norm(a_.sent_norms + blockIdx.x);
  }

  static constexpr bool kHasGradient = !std::is_void_v<T>;

  const TileUnitsArguments& a_;
  const UnitTile& tile_;
  TileUnitsShared& s_;
  float factor_;
  std::uint32_t k_;
  std::uint32_t start_ = 0;  // where the winners are written
  float sum_[kHalfRows];
  std::uint32_t candidates_ = 0;  // rows
  std::uint32_t sent_ = 0;        // entries of the unit
};

// Not inlined: it needs more registers, and they would be missing elsewhere.
template <class T>
__device__ __noinline__ void sift_part_of_tile(const TileUnitsArguments& a, const UnitTile& tile, TileUnitsShared& s) {
  TileUnit<T, false>(a, tile, s).sift();
}

template <class T>
__global__ void __launch_bounds__(kPassThreads, kPassBlocks)
    sift_tile_units(const __grid_constant__ TileUnitsArguments a) {
  __shared__ TileUnitsShared s;
  const UnitTile tile = a.tiles[blockIdx.x];
  const unsigned ahead = blockIdx.x + kBlocksAhead;
  if (threadIdx.x == 0 && ahead < gridDim.x) {
    prefetch(a.tiles + ahead);
    prefetch(a.bars + ahead);
    prefetch(a.ks + ahead);
    prefetch(a.slots + ahead);
    prefetch(a.floors + ahead);
    prefetch(a.margins + ahead);
  }
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
