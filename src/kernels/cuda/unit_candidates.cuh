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
  const Piece* pieces;
  const UnitTiles* units;
  const std::uint32_t* ks;     // 0: all candidates of the unit win
  const std::uint32_t* slots;  // where the winners of each unit are written
  Bar* bars;
  std::uint32_t* floors;  // ranks
  float* margins;         // of the floors below the last k-th
  std::uint32_t* before;  // candidates of the unit before those of each tile
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

inline constexpr std::uint32_t kTilesInShared = 1024;

struct ChooseShared {
  union {
    SelectShared select;
    double squares[kSelectThreads / 32][kSlices * 32];
  };
  std::uint32_t before[kTilesInShared];
  std::uint32_t begin;  // where the candidates of the unit are gathered
  std::uint32_t is_last;
};

// The candidates of a unit, one tile after the other.
class UnitCandidates {
 public:
  __device__ UnitCandidates(const CandidateArguments& a, ChooseShared& s)
      : a_(a), s_(s), range_(a.units[blockIdx.x]), k_(a.ks[blockIdx.x]), factor_(a.bars[blockIdx.x].factor) {
    before_ = range_.count <= kTilesInShared ? s.before : a.before + range_.first;
  }

  __device__ void choose() {
    count();
    const std::uint32_t floor = a_.floors[blockIdx.x];
    if (n_ < k_ && floor > 1) return fail(kTooFew);
    if (threadIdx.x == 0) s_.begin = atomicAdd(&a_.control->gathered, n_);
    __syncthreads();
    begin_ = s_.begin;
    if (begin_ + n_ > a_.room) return fail(kNoRoom);
    gather();
    Bar bar{0, 0, factor_};
    if (k_ > 0 && n_ > k_) bar = find_bar_of(a_.values + begin_, n_, k_, factor_, s_.select);
    const std::uint32_t sent = settle(bar);
    add_norms();
    if (threadIdx.x != 0) return;
    a_.counts[blockIdx.x] = sent;
    if (k_ == 0) return;
    a_.bars[blockIdx.x] = bar;
    if (range_.count == 1) return;  // its floor stays
    a_.margins[blockIdx.x] = next_margin(a_.margins[blockIdx.x], n_, k_);
    a_.floors[blockIdx.x] = floor_below(n_ > k_ ? bar.rank : floor, a_.margins[blockIdx.x]);
  }

 private:
  __device__ void fail(Outcome outcome) {
    if (threadIdx.x == 0) atomicOr(&a_.control->failure.outcome, outcome);
  }

  // How many there are, and how many come before those of each tile.
  __device__ void count() {
    for (std::uint32_t first = 0; first < range_.count; first += kSelectThreads) {
      const std::uint32_t t = first + threadIdx.x;
      const std::uint32_t mine = t < range_.count ? a_.lists[range_.first + t].count : 0;
      std::uint32_t lower = 0;
      std::uint32_t all = 0;
      SelectScan(s_.select.scan).ExclusiveSum(mine, lower, all);
      if (t < range_.count) before_[t] = n_ + lower;
      n_ += all;
      __syncthreads();
    }
  }

  __device__ void gather() {
    for (std::uint32_t i = threadIdx.x; i < n_; i += kSelectThreads) {
      std::uint32_t low = 0;
      std::uint32_t high = range_.count;
      while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        (before_[middle] <= i ? low : high) = middle;
      }
      const std::uint32_t from = a_.lists[range_.first + low].offset + (i - before_[low]);
      const std::uint32_t index = a_.arena_indices[from];
      a_.indices[begin_ + i] = index;
      a_.values[begin_ + i] = a_.arena_values[from];
      a_.offsets[begin_ + i] = static_cast<std::uint16_t>(offset_in(a_.tiles[range_.first + low], a_.pieces, index));
    }
    __syncthreads();
  }

  // Writes the winners to the slots of the unit and puts the others back. Returns how many are sent.
  __device__ std::uint32_t settle(const Bar& bar) {
    const std::uint32_t slot = a_.slots[blockIdx.x];
    std::uint32_t above = 0;
    std::uint32_t ties = 0;
    for (std::uint32_t at = 0; at < n_; at += kSelectThreads) {
      const std::uint32_t i = begin_ + at + threadIdx.x;
      const bool is_there = at + threadIdx.x < n_;
      const float value = is_there ? a_.values[i] : 0;
      const std::uint32_t rank = rank_of(value, factor_);
      const bool is_above = is_there && rank > bar.rank;
      const bool is_tie = is_there && rank == bar.rank && bar.quota > 0;
      // Ties in the upper half.
      std::uint32_t lower = 0;
      std::uint32_t all = 0;
      SelectScan(s_.select.scan).ExclusiveSum((is_above ? 1U : 0U) + (is_tie ? 1U << 16U : 0U), lower, all);
      const std::uint32_t tie = ties + (lower >> 16U);
      const bool wins = is_above || (is_tie && tie < bar.quota);
      if (wins) {
        const std::uint32_t to = slot + above + (lower & 0xFFFFU) + min(tie, bar.quota);
        a_.out_indices[to] = a_.indices[i];
        a_.out_values[to] = value;
      } else if (is_there) {
        a_.memory[a_.indices[i]] = value;
      }
      if (is_there) a_.wins[i] = wins ? 1 : 0;
      above += all & 0xFFFFU;
      ties += all >> 16U;
      __syncthreads();
    }
    return above + min(ties, bar.quota);
  }

  // The squares of the winners of each tile, by one warp.
  __device__ void add_norms() {
    for (std::uint32_t t = threadIdx.x / 32; t < range_.count; t += kSelectThreads / 32) {
      const std::uint32_t end = t + 1 < range_.count ? before_[t + 1] : n_;
      const double sum = square_few(begin_ + before_[t], begin_ + end, s_.squares[threadIdx.x / 32],
                                    [&](std::uint32_t i) -> MaybeSent {
                                      return {a_.wins[i] != 0, a_.offsets[i], a_.values[i]};
                                    });
      if (threadIdx.x % 32 == 0) a_.sent_norms[range_.first + t] = sum;
    }
  }

  const CandidateArguments& a_;
  ChooseShared& s_;
  UnitTiles range_;
  std::uint32_t k_;
  float factor_;
  std::uint32_t* before_;  // of the tiles of the unit
  std::uint32_t n_ = 0;
  std::uint32_t begin_ = 0;
};

// Chooses among the candidates of each unit: writes the winners to its slots, puts the others back, and adds up the
// squares. One block for each unit. If the candidates of a unit do not suffice, those of all have to be put back.
__global__ void __launch_bounds__(kSelectThreads) choose_candidates(const __grid_constant__ CandidateArguments a) {
  __shared__ ChooseShared s;
  UnitCandidates(a, s).choose();
  // The last block prepares the next step.
  Control& control = *a.control;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    s.is_last = atomicAdd(&control.units_done, 1) + 1 == gridDim.x ? 1 : 0;
    __threadfence();
  }
  __syncthreads();
  if (s.is_last == 0) return;
  if (threadIdx.x < kArenas) control.used[threadIdx.x].value = 0;
  if (threadIdx.x != 0) return;
  control.last_failure = {atomicAdd(&control.failure.bad, 0ULL), atomicAdd(&control.failure.outcome, 0U)};
  control.failure = {~0ULL, kDone};
  control.gathered = control.units_done = 0;
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
