// Chooses among the candidates of a pass: finds the k-th key, writes the winners in ascending order of their indices,
// puts the others back, and adds up the norms. One cooperative kernel: two barriers between all blocks cost less than
// as many launches.
//
// Each block has some consecutive tiles. Their candidates are gathered into shared memory, in ascending order; where
// there are more than fit, they are gathered part by part, again in each phase.
#pragma once

#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

inline constexpr unsigned kFinishThreads = 512;
inline constexpr unsigned kFinishWarps = kFinishThreads / 32;
inline constexpr std::uint32_t kListRoom = 6144;  // candidates in shared memory; a tile has 4096 at most
inline constexpr std::uint32_t kTileRoom = 2048;  // tiles of a part
inline constexpr std::uint32_t kAllWin = ~std::uint32_t{0};

struct FinishArguments {
  float* memory;
  std::size_t tiles_count;
  std::uint32_t tiles_per_block;
  Control* control;
  const TileList* tiles;
  const double* tile_norms;
  double* group_norms;  // of 4096 tiles each
  double* sent_norms;   // of each tile
  double* sent_group_norms;
  std::uint32_t* group_counts;  // tiles of each group whose norms are there
  const std::uint32_t* indices;
  const float* values;
  std::uint32_t* fine;
  std::uint32_t window;     // of the fine bins
  std::uint64_t k;          // 0: all candidates win
  std::uint32_t threshold;  // key, as in the pass
  std::uint32_t wanted;     // candidates that a guess should give
  std::uint32_t* out_indices;
  float* out_values;
  std::uint64_t epoch;
  StepResult* result;
};

// In dynamic shared memory.
struct FinishShared {
  std::uint32_t begin[kTileRoom + 1];  // of each tile's candidates, among those of the part
  std::uint32_t offset[kTileRoom];     // in the arenas
  std::uint32_t index[kListRoom];
  float value[kListRoom];
  std::uint8_t wins[kListRoom];
  union {
    std::uint32_t bins[kBins];
    double squares[kFinishWarps][kSlices * 32];  // of a tile, by slice and lane
  };
  std::uint32_t warps[kFinishWarps][2];
  std::uint32_t found[2];
  std::uint32_t is_last;
  double slices[2][kSlices];
};

// The sum of two numbers of each thread, over the block; all threads get it.
__device__ inline uint2 block_sum(std::uint32_t a, std::uint32_t b, FinishShared& s) {
  a = __reduce_add_sync(kAllLanes, a);
  b = __reduce_add_sync(kAllLanes, b);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    s.warps[threadIdx.x / 32][0] = a;
    s.warps[threadIdx.x / 32][1] = b;
  }
  __syncthreads();
  uint2 sum{0, 0};
  for (unsigned w = 0; w < kFinishWarps; ++w) {
    sum.x += s.warps[w][0];
    sum.y += s.warps[w][1];
  }
  return sum;
}

// The sum of a number over the threads up to this one.
__device__ inline std::uint32_t block_scan(std::uint32_t sum, FinishShared& s) {
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint32_t left = __shfl_up_sync(kAllLanes, sum, step);
    if (threadIdx.x % 32 >= step) sum += left;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) s.warps[threadIdx.x / 32][0] = sum;
  __syncthreads();
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) sum += s.warps[w][0];
  return sum;
}

// The sums of two times 4096 numbers by the tree of kernels/norm.h; missing ones are 0. Each half of the threads adds
// one. Thread 0 gets both.
__device__ inline double2 add_groups_of_two(const double* first, const double* second, std::size_t count,
                                            FinishShared& s) {
  const unsigned half = threadIdx.x / kTileThreads;
  const unsigned thread = threadIdx.x % kTileThreads;
  const double* numbers = half == 0 ? first : second;
  double lane_sum = 0;
  double mine[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::size_t i = thread / 32 * kSlice + thread % 32 + static_cast<std::size_t>(row) * 32;
    mine[row] = i < count ? __ldcg(numbers + i) : 0;
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) lane_sum += mine[row];
  const double slice = add_lanes<32>(lane_sum);
  __syncthreads();
  if (thread % 32 == 0) s.slices[half][thread / 32] = slice;
  __syncthreads();
  double2 sums{0, 0};
  if (threadIdx.x < 32) {
    sums.x = add_lanes<kSlices>(threadIdx.x < kSlices ? s.slices[0][threadIdx.x] : 0);
    sums.y = add_lanes<kSlices>(threadIdx.x < kSlices ? s.slices[1][threadIdx.x] : 0);
  }
  return sums;
}

// The same for 32 numbers at most: they are the lanes of one slice. By the first warp.
__device__ inline double add_few(const double* numbers, std::size_t count) {
  return add_lanes<32>(threadIdx.x < count ? __ldcg(numbers + threadIdx.x) : 0);
}

// Some of the block's candidates, in shared memory.
struct Part {
  std::uint32_t tile = 0;  // the first, and the one after the last, of the block
  std::uint32_t end = 0;
  std::uint32_t count = 0;
};

class Finish {
 public:
  __device__ Finish(const FinishArguments& a, FinishShared& s) : a_(a), s_(s) {
    first_tile_ = std::size_t{blockIdx.x} * a.tiles_per_block;
    if (first_tile_ < a.tiles_count) {
      tiles_ = static_cast<std::uint32_t>(min(a.tiles_count - first_tile_, std::size_t{a.tiles_per_block}));
    }
  }

  __device__ void run() {
    const std::uint32_t used = threadIdx.x < kArenas ? a_.control->used[threadIdx.x].value : 0;
    const std::uint32_t outcome = a_.control->outcome;
    const std::uint32_t threshold = a_.threshold != 0 ? a_.threshold : a_.control->threshold;
    std::uint32_t in_window = 0;
    if (a_.k != 0) {
      for (unsigned i = threadIdx.x; i < fine_per_block(); i += kFinishThreads) in_window += fine_bin(blockIdx.x, i);
    }
    const uint2 sums = block_sum(used, in_window, s_);
    found_ = sums.x;
    if (outcome != kDone) return fail(outcome);
    if (a_.k > found_ && threshold > kLowestKey) return fail(kTooFew);
    kth_ = threshold;
    quota_ = kAllWin;
    if (a_.k != 0 && found_ > a_.k) {
      if (threadIdx.x == 0) a_.control->fine_sums[blockIdx.x] = sums.y;
      arrive();
      gather_first();
      wait();
      find_kth(threshold);
    } else {
      gather_first();
    }
    count_winners();
    write();
    add_norms();
  }

 private:
  __device__ std::uint32_t fine_per_block() const { return (a_.window + gridDim.x - 1) / gridDim.x; }
  __device__ std::uint32_t fine_bin(unsigned block, std::uint32_t i) const {
    const std::uint32_t at = block * fine_per_block() + i;
    return at < a_.window ? __ldcg(a_.fine + at) : 0;
  }

  // A barrier of all blocks, in two halves: what is done between them overlaps with waiting.
  __device__ void arrive() {
    __syncthreads();
    ++barriers_;
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&a_.control->arrived, 1);
    }
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      while (*static_cast<volatile std::uint32_t*>(&a_.control->arrived) < barriers_ * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }

  // All blocks come here, or none.
  __device__ void fail(std::uint32_t outcome) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    StepResult r;
    r.outcome = outcome;
    r.bad = a_.control->bad;
    r.found = found_;
    publish(r);
  }

  __device__ void publish(const StepResult& r) {
    volatile StepResult* to = a_.result;
    to->count = r.count;
    to->bad = r.bad;
    to->accumulated_norm2 = r.accumulated_norm2;
    to->sent_norm2 = r.sent_norm2;
    to->outcome = r.outcome;
    to->kth = r.kth;
    to->found = r.found;
    __threadfence_system();
    to->epoch = a_.epoch;
  }

  // The part that begins with this tile: as many as there is room for.
  __device__ Part load_part(std::uint32_t tile) {
    Part part{tile, min(tiles_, tile + kTileRoom), 0};
    std::uint32_t before = 0;
    __syncthreads();
    for (std::uint32_t at = tile; at < part.end; at += kFinishThreads) {
      const std::uint32_t i = at + threadIdx.x;
      TileList list;
      if (i < part.end) list = a_.tiles[first_tile_ + i];
      const std::uint32_t through = before + block_scan(list.count, s_);
      if (i < part.end) {
        s_.begin[i - tile] = through - list.count;
        s_.offset[i - tile] = list.offset;
      }
      if (threadIdx.x == kFinishThreads - 1) s_.found[0] = through;
      __syncthreads();
      before = s_.found[0];
    }
    if (threadIdx.x == 0) s_.begin[part.end - tile] = before;
    __syncthreads();
    std::uint32_t low = 1;
    std::uint32_t high = part.end - tile + 1;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (s_.begin[middle] <= kListRoom ? low : high) = middle;
    }
    part.end = tile + low;
    part.count = s_.begin[low];
    return part;
  }

  __device__ Part gather(std::uint32_t tile) {
    if (has_all_) return all_;
    const Part part = load_part(tile);
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      std::uint32_t low = 0;  // begin[low] <= i < begin[high]
      std::uint32_t high = part.end - tile;
      while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        (s_.begin[middle] <= i ? low : high) = middle;
      }
      const std::uint32_t from = s_.offset[low] + (i - s_.begin[low]);
      s_.index[i] = a_.indices[from];
      s_.value[i] = a_.values[from];
    }
    __syncthreads();
    return part;
  }

  // If all candidates of the block fit, they are gathered once.
  __device__ void gather_first() {
    if (tiles_ == 0) return;
    all_ = gather(0);
    has_all_ = all_.end == tiles_;
  }

  // The k-th largest key, and how many of the candidates that have it win: those with the lowest indices.
  __device__ void find_kth(std::uint32_t threshold) {
    auto rank = static_cast<std::uint32_t>(a_.k);
    // Thread t has the sum of block number gridDim - 1 - t: from the top.
    static_assert(kMostBlocks <= 2 * kFinishThreads);
    std::uint32_t mine[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned from_top = 2 * threadIdx.x + i;
      mine[i] = from_top < gridDim.x ? __ldcg(a_.control->fine_sums + (gridDim.x - 1 - from_top)) : 0;
    }
    const std::uint32_t through = block_scan(mine[0] + mine[1], s_);
    if (threadIdx.x == kFinishThreads - 1) s_.found[0] = through;
    __syncthreads();
    const std::uint32_t above_window = found_ - s_.found[0];
    __syncthreads();
    if (above_window >= rank) return search(threshold + a_.window, kInfinityKey, rank);
    rank -= above_window;
    const std::uint32_t before = through - mine[0] - mine[1];
    if (before < rank && rank <= through) {
      const bool is_first = rank <= before + mine[0];
      s_.found[0] = gridDim.x - 1 - (2 * threadIdx.x + (is_first ? 0 : 1));
      s_.found[1] = is_first ? before : before + mine[0];
    }
    __syncthreads();
    const std::uint32_t block = s_.found[0];
    rank -= s_.found[1];
    const uint2 found = find_bin([&](std::uint32_t i) { return i < fine_per_block() ? fine_bin(block, i) : 0; }, rank);
    kth_ = threshold + block * fine_per_block() + found.x;
    quota_ = rank - found.y;
  }

  // Among the candidates with keys in [low, high). Each round divides them into bins, the last of which has everything
  // above.
  __device__ void search(std::uint32_t low, std::uint32_t high, std::uint32_t rank) {
    std::uint32_t shift = 12;
    for (int round = 0; round < kMostRounds; ++round) {
      for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) s_.bins[i] = 0;
      __syncthreads();
      for (std::uint32_t tile = 0; tile < tiles_;) {
        const Part part = gather(tile);
        for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
          const std::uint32_t one = key(s_.value[i]);
          if (one >= low && one < high) atomicAdd(&s_.bins[min((one - low) >> shift, kBins - 1U)], 1);
        }
        tile = part.end;
      }
      __syncthreads();
      std::uint32_t* all = a_.control->bins[round];
      for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) {
        if (s_.bins[i] != 0) atomicAdd(all + i, s_.bins[i]);
      }
      arrive();
      wait();
      const uint2 found = find_bin([&](std::uint32_t i) { return __ldcg(all + i); }, rank);
      rounds_ = round + 1;
      rank -= found.y;
      if (found.x == kBins - 1 && high - low > (std::uint64_t{kBins} << shift)) {
        low += (kBins - 1U) << shift;
        shift = min(shift + 8, 20U);
        continue;
      }
      low += found.x << shift;
      high = static_cast<std::uint32_t>(min(std::uint64_t{high}, std::uint64_t{low} + (std::uint64_t{1} << shift)));
      if (shift == 0) break;
      shift = shift > 11 ? shift - 11 : 0;
    }
    kth_ = low;
    quota_ = rank;
  }

  // The bin in which entry number `rank` from the top is, and how many are in those above.
  template <class Bin>
  __device__ uint2 find_bin(Bin bin, std::uint32_t rank) {
    constexpr unsigned kEach = kBins / kFinishThreads;
    std::uint32_t mine[kEach];  // thread 0 has the highest
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < kEach; ++i) sum += mine[i] = bin(kBins - 1 - (threadIdx.x * kEach + i));
    const std::uint32_t through = block_scan(sum, s_);
    std::uint32_t before = through - sum;
    if (before < rank && rank <= through) {
      for (unsigned i = 0; i < kEach; ++i) {
        if (rank <= before + mine[i]) {
          s_.found[0] = kBins - 1 - (threadIdx.x * kEach + i);
          s_.found[1] = before;
          break;
        }
        before += mine[i];
      }
    }
    __syncthreads();
    return {s_.found[0], s_.found[1]};
  }

  // How many come before those of this block.
  __device__ void count_winners() {
    std::uint32_t above = 0;
    std::uint32_t ties = 0;
    for (std::uint32_t tile = 0; tile < tiles_;) {
      const Part part = gather(tile);
      if (quota_ == kAllWin) {
        above += threadIdx.x == 0 ? part.count : 0;
      } else {
        for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
          above += key(s_.value[i]) > kth_ ? 1 : 0;
          ties += key(s_.value[i]) == kth_ ? 1 : 0;
        }
      }
      tile = part.end;
    }
    const uint2 mine = block_sum(above, ties, s_);
    if (threadIdx.x == 0) {
      __stcg(a_.control->above + blockIdx.x, mine.x);
      __stcg(a_.control->ties + blockIdx.x, mine.y);
    }
    arrive();
    wait();
    above = ties = 0;
    std::uint32_t all = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kFinishThreads) {
      const std::uint32_t one = __ldcg(a_.control->above + b);
      all += one;
      above += b < blockIdx.x ? one : 0;
      ties += b < blockIdx.x ? __ldcg(a_.control->ties + b) : 0;
    }
    const uint2 before = block_sum(above, ties, s_);
    above_ = before.x;
    ties_ = before.y;
    if (quota_ != kAllWin) {
      total_ = static_cast<std::uint32_t>(a_.k);
    } else {
      total_ = found_;
    }
    clear();
  }

  // Everybody has read the bins, and what the pass counted.
  __device__ void clear() {
    if (a_.k != 0) {
      for (unsigned i = threadIdx.x; i < fine_per_block(); i += kFinishThreads) {
        if (blockIdx.x * fine_per_block() + i < a_.window) a_.fine[blockIdx.x * fine_per_block() + i] = 0;
      }
    }
    for (unsigned i = blockIdx.x * kFinishThreads + threadIdx.x; i < static_cast<unsigned>(rounds_) * kBins;
         i += gridDim.x * kFinishThreads) {
      a_.control->bins[0][i] = 0;
    }
    if (blockIdx.x == 0 && threadIdx.x < kArenas) a_.control->used[threadIdx.x].value = 0;
  }

  __device__ void write() {
    const bool all_win = quota_ == kAllWin;
    for (std::uint32_t tile = 0; tile < tiles_;) {
      const Part part = gather(tile);
      for (std::uint32_t at = 0; at < part.count; at += kFinishThreads) {
        const std::uint32_t i = at + threadIdx.x;
        const bool is_there = i < part.count;
        const std::uint32_t one = is_there ? key(s_.value[i]) : 0;
        const bool is_above = is_there && (all_win || one > kth_);
        const bool is_tie = is_there && !all_win && one == kth_;
        const unsigned aboves = __ballot_sync(kAllLanes, is_above);
        const unsigned equals = __ballot_sync(kAllLanes, is_tie);
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
          s_.warps[threadIdx.x / 32][0] = static_cast<std::uint32_t>(__popc(aboves));
          s_.warps[threadIdx.x / 32][1] = static_cast<std::uint32_t>(__popc(equals));
        }
        __syncthreads();
        const unsigned lower = (1U << threadIdx.x % 32) - 1;
        std::uint32_t above = above_ + static_cast<std::uint32_t>(__popc(aboves & lower));
        std::uint32_t ties = ties_ + static_cast<std::uint32_t>(__popc(equals & lower));
#pragma unroll
        for (unsigned w = 0; w < kFinishWarps; ++w) {
          const std::uint32_t warp_above = s_.warps[w][0];
          const std::uint32_t warp_ties = s_.warps[w][1];
          if (w < threadIdx.x / 32) {
            above += warp_above;
            ties += warp_ties;
          }
          above_ += warp_above;
          ties_ += warp_ties;
        }
        const bool wins = is_above || (is_tie && ties < quota_);
        if (wins) {
          const std::uint32_t to = above + (all_win ? 0 : min(ties, quota_));
          a_.out_indices[to] = s_.index[i];
          a_.out_values[to] = s_.value[i];
        } else if (is_there) {
          a_.memory[s_.index[i]] = s_.value[i];
        }
        if (is_there) s_.wins[i] = wins ? 1 : 0;
      }
      __syncthreads();
      for (std::uint32_t t = part.tile + threadIdx.x / 32; t < part.end; t += kFinishWarps) add_sent(t, t - part.tile);
      tile = part.end;
    }
  }

  // The squares of the winners of a tile, by one warp: each at its slice and lane, those of one lane in ascending
  // order.
  __device__ void add_sent(std::uint32_t tile, std::uint32_t in_part) {
    const unsigned lane = threadIdx.x % 32;
    double* squares = s_.squares[threadIdx.x / 32];
    const std::uint32_t end = s_.begin[in_part + 1];
    std::uint32_t at = s_.begin[in_part];
    double sum[kSlices] = {};
    if (at < end) {
#pragma unroll
      for (unsigned i = 0; i < kSlices; ++i) squares[i * 32 + lane] = 0;
      __syncwarp();
      for (; at < end; at += 32) {
        const std::uint32_t i = at + lane;
        const bool wins = i < end && s_.wins[i] != 0;
        const unsigned offset = wins ? s_.index[i] % static_cast<unsigned>(kTile) : 0;
        const unsigned place = wins ? offset / static_cast<unsigned>(kSlice) * 32 + offset % 32 : ~lane;
        const double square = wins ? static_cast<double>(s_.value[i]) * static_cast<double>(s_.value[i]) : 0;
        const unsigned same = __match_any_sync(kAllLanes, place);
        const int turn = __popc(same & ((1U << lane) - 1));
        for (int t = 0; __any_sync(kAllLanes, wins && t <= turn); ++t) {
          if (wins && t == turn) squares[place] += square;
          __syncwarp();
        }
      }
#pragma unroll
      for (unsigned i = 0; i < kSlices; ++i) sum[i] = squares[i * 32 + lane];
#pragma unroll
      for (int half = 16; half > 0; half /= 2) {
#pragma unroll
        for (unsigned i = 0; i < kSlices; ++i) sum[i] += __shfl_down_sync(kAllLanes, sum[i], half);
      }
      __syncwarp();
    }
    if (lane == 0) {
      a_.sent_norms[first_tile_ + tile] =
          ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
    }
  }

  // Whoever completes a group of 4096 tiles adds it up, and whoever completes the groups publishes the result.
  __device__ void add_norms() {
    if (tiles_ == 0) return;
    const std::size_t groups = (a_.tiles_count + kTile - 1) / kTile;
    for (std::size_t g = first_tile_ / kTile; g <= (first_tile_ + tiles_ - 1) / kTile; ++g) {
      const std::size_t size = min(a_.tiles_count - g * kTile, std::size_t{kTile});
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        const std::size_t begin = max(first_tile_, g * kTile);
        const auto mine = static_cast<std::uint32_t>(min(first_tile_ + tiles_, (g + 1) * kTile) - begin);
        s_.is_last = atomicAdd(a_.group_counts + g, mine) + mine == size ? 1 : 0;
        __threadfence();
      }
      __syncthreads();
      if (s_.is_last == 0) continue;
      const double2 sums = add_groups_of_two(a_.tile_norms + g * kTile, a_.sent_norms + g * kTile, size, s_);
      if (threadIdx.x == 0) {
        a_.group_counts[g] = 0;
        __stcg(a_.group_norms + g, sums.x);
        __stcg(a_.sent_group_norms + g, sums.y);
        __threadfence();
        s_.is_last = atomicAdd(&a_.control->groups_done, 1) + 1 == groups ? 1 : 0;
        __threadfence();
      }
      __syncthreads();
      if (s_.is_last != 0) end(groups);
    }
  }

  __device__ void end(std::size_t groups) {
    double2 sums{0, 0};
    if (groups > 32) {
      sums = add_groups_of_two(a_.group_norms, a_.sent_group_norms, groups, s_);
    } else if (threadIdx.x < 32) {
      sums = {add_few(a_.group_norms, groups), add_few(a_.sent_group_norms, groups)};
    }
    if (threadIdx.x != 0) return;
    a_.control->groups_done = 0;
    StepResult r;
    r.count = total_;
    r.accumulated_norm2 = sums.x;
    r.sent_norm2 = sums.y;
    r.kth = quota_ == kAllWin ? 0 : kth_;
    r.found = found_;
    if (a_.k != 0) guess(*a_.control);
    publish(r);
  }

  // The threshold of the next step: slightly below the k-th magnitude, so that somewhat more than k are above it. It
  // affects the speed only.
  __device__ void guess(Control& control) const {
    if (quota_ == kAllWin) {  // at most k non-zero entries
      control.threshold = kLowestKey;
      return;
    }
    const float beyond = static_cast<float>(found_) - static_cast<float>(a_.k);
    const float factor = (static_cast<float>(a_.wanted) - static_cast<float>(a_.k)) / fmaxf(beyond, 1.0F);
    control.margin = fminf(fmaxf(control.margin * fminf(fmaxf(factor, 0.5F), 2.0F), 1e-4F), 0.5F);
    control.threshold = max(kLowestKey, key(__uint_as_float(kth_) * (1 - control.margin)));
  }

  const FinishArguments& a_;
  FinishShared& s_;
  std::size_t first_tile_ = 0;
  std::uint32_t tiles_ = 0;
  std::uint32_t found_ = 0;
  std::uint32_t kth_ = 0;
  std::uint32_t quota_ = 0;  // of candidates equal to the k-th; kAllWin: every candidate wins
  std::uint32_t above_ = 0;  // winners before those at hand
  std::uint32_t ties_ = 0;
  std::uint32_t total_ = 0;
  std::uint32_t barriers_ = 0;
  int rounds_ = 0;
  Part all_;
  bool has_all_ = false;
};

__global__ void __launch_bounds__(kFinishThreads, 2) finish(FinishArguments a) {
  extern __shared__ __align__(16) unsigned char room[];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the pass has ended
#endif
  Finish(a, *reinterpret_cast<FinishShared*>(room)).run();
}

}  // namespace sparsewire::cuda
