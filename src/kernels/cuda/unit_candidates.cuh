// The k largest entries of each of many units, in one pass and a look at few entries: as on the processor, the k-th
// entry of a unit is hardly another one than in the step before. So each unit has a *floor*, slightly below the last
// k-th rank. What reaches it is moved to the arenas by the pass, and chosen from; the others go back.
//
// If there are too few or too many, all have to be put back, and unit_select.cuh does it.
#pragma once

#include "kernels/cuda/scores.cuh"
#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

struct CandidateArguments {
  float* memory;
  Control* control;
  const TileList* lists;  // in the arenas
  const std::uint32_t* arena_indices;
  const float* arena_values;
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
  std::uint8_t* wins;
  std::uint32_t* counts;  // winners of each unit
  std::uint32_t* out_indices;
  float* out_values;
  // Of the second choice.
  const std::uint32_t* second_ks = nullptr;  // 0: all that the first choice gives are sent
  std::uint32_t* ranks = nullptr;            // of the candidates
  Stream draw{0, 0, 0, 0};
  Scores scores = {};
};

// The k-th of n ranks, and how many that have it are among the first k. rank(i), if counts(i). By all threads of the
// block. REQUIRES: k at least.
template <class Rank, class Counts>
__device__ inline uint2 find_kth_of(std::uint32_t n, std::uint32_t k, SelectShared& s, Rank rank, Counts counts) {
  std::uint32_t place = k;
  std::uint32_t prefix = 0;
  for (int round = 0; round < kSelectRounds; ++round) {
    const unsigned above = round == 0 ? 32 : round == 1 ? 21 : 10;
    const unsigned shift = round == 0 ? 21 : round == 1 ? 10 : 0;
    for (unsigned i = threadIdx.x; i < kBins; i += kSelectThreads) s.bins[i] = 0;
    __syncthreads();
    for (std::uint32_t at = 0; at < n; at += kSelectThreads) {
      const std::uint32_t i = at + threadIdx.x;
      const std::uint32_t one = i < n ? rank(i) : 0;
      const bool is_in = i < n && (round == 0 || one >> above == prefix) && counts(i);
      count_in_bin(s.bins, one >> shift & ((1U << (above - shift)) - 1), is_in);
    }
    __syncthreads();
    const uint2 found = find_bin_from_top(s.bins, place, s);
    prefix = prefix << (above - shift) | found.x;
    place = found.y;
  }
  return {prefix, place};
}

inline constexpr std::uint32_t kTilesInShared = 1024;
inline constexpr std::uint32_t kCandidatesInShared = 4096;

// The candidates of a unit: in shared memory, or in that of the device if they are many.
struct GatheredCandidates {
  std::uint32_t* indices;
  float* values;
  std::uint32_t* ranks;
  std::uint8_t* wins;  // by the first of two choices
};

// In dynamic shared memory.
struct ChooseShared {
  SelectShared select;
  std::uint32_t before[kTilesInShared];
  std::uint32_t indices[kCandidatesInShared];
  float values[kCandidatesInShared];
  std::uint32_t ranks[kCandidatesInShared];
  std::uint8_t wins[kCandidatesInShared];
  std::uint32_t counts[2][kSelectThreads / 32];
  std::uint32_t begin;  // where the candidates of the unit are gathered, if they are many
  std::uint32_t reach;  // scores that reach the floor
  std::uint32_t is_last;
};

// The candidates of a unit, one tile after the other.
template <By kBy>
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
    if (!find_room()) return fail(kNoRoom);
    gather();
    std::uint32_t reach = n_;  // the floor
    if (kBy == By::score && k_ > 0 && floor > 1) {
      reach = count_scores(floor);
      if (reach < k_) return fail(kTooFew);
    }
    const Bar bar = k_ > 0 && n_ > k_ ? find_unit_bar(floor) : Bar{0, 0, factor_};
    const auto by_bar = [&](std::uint32_t i) { return compare(rank(i), bar.rank); };
    std::uint32_t sent = 0;
    const std::uint32_t drawn = kBy == By::draw ? a_.second_ks[blockIdx.x] : 0;
    if (kBy == By::draw && drawn > 0 && min(n_, k_) > drawn) {
      sent = draw(drawn, by_bar, bar.quota);
    } else {
      sent = for_each_in_order(by_bar, bar.quota,
                               [&](std::uint32_t i, bool wins, std::uint32_t number) { settle(i, wins, number); });
    }
    if (threadIdx.x != 0) return;
    a_.counts[blockIdx.x] = sent;
    if (k_ == 0) return;
    a_.bars[blockIdx.x] = bar;
    if (range_.count == 1) return;  // its floor stays
    a_.margins[blockIdx.x] = next_margin(a_.margins[blockIdx.x], reach, k_);
    a_.floors[blockIdx.x] = floor_below(n_ > k_ ? bar.rank : floor, a_.margins[blockIdx.x]);
  }

 private:
  __device__ void fail(Outcome outcome) {
    if (threadIdx.x == 0) atomicOr(&a_.control->failure.outcome, outcome);
  }

  // Few candidates: in registers.
  __device__ Bar find_unit_bar(std::uint32_t floor) {
    if (n_ > kCandidatesInShared) {
      const uint2 kth = find_kth_of(
          n_, k_, s_.select, [&](std::uint32_t i) { return rank(i); }, [](std::uint32_t) { return true; });
      return {kth.x, kth.y, factor_};
    }
    std::uint32_t ranks[kCandidatesInShared / kSelectThreads];
#pragma unroll
    for (unsigned row = 0; row < kCandidatesInShared / kSelectThreads; ++row) {
      const std::uint32_t i = row * kSelectThreads + threadIdx.x;
      ranks[row] = i < n_ ? rank(i) : 0;
    }
    // The k-th is mostly about a fiftieth above the floor. Scores may be below it.
    constexpr std::uint32_t kWidth = 1U << 17U;
    const std::uint32_t low = kBy == By::score ? 1 : max(floor, 1U);
    Bar bar = find_bar(ranks, k_, low, low > 1 ? kWidth : kInfinityKey, s_.counts);
    bar.factor = factor_;
    return bar;
  }

  __device__ bool find_room() {
    if (n_ <= kCandidatesInShared) {
      c_ = {s_.indices, s_.values, s_.ranks, s_.wins};
      return true;
    }
    if (threadIdx.x == 0) s_.begin = atomicAdd(&a_.control->gathered, n_);
    __syncthreads();
    const std::uint32_t begin = s_.begin;
    c_ = {a_.indices + begin, a_.values + begin, a_.ranks + begin, a_.wins + begin};
    return begin + n_ <= a_.room;
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

  // Some at a time: what is read does not wait for what is written.
  __device__ void gather() {
    constexpr unsigned kBatch = 4;
    for (std::uint32_t first = threadIdx.x; first < n_; first += kBatch * kSelectThreads) {
      std::uint32_t indices[kBatch];
      float values[kBatch];
#pragma unroll
      for (unsigned b = 0; b < kBatch; ++b) {
        const std::uint32_t i = min(first + b * kSelectThreads, n_ - 1);
        const std::uint32_t tile = tile_of(i);
        const std::uint32_t from = a_.lists[range_.first + tile].offset + (i - before_[tile]);
        indices[b] = a_.arena_indices[from];
        values[b] = a_.arena_values[from];
      }
#pragma unroll
      for (unsigned b = 0; b < kBatch; ++b) {
        const std::uint32_t i = first + b * kSelectThreads;
        if (i < n_) put(i, indices[b], values[b]);
      }
    }
    __syncthreads();
  }
  __device__ std::uint32_t tile_of(std::uint32_t i) const {
    std::uint32_t low = 0;
    std::uint32_t high = range_.count;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (before_[middle] <= i ? low : high) = middle;
    }
    return low;
  }
  __device__ void put(std::uint32_t i, std::uint32_t index, float value) {
    c_.indices[i] = index;
    c_.values[i] = value;
    if constexpr (kBy == By::score) {
      c_.ranks[i] = k_ == 0 ? 1 : a_.scores.key_of(index, value) + 1;
    } else if constexpr (kBy == By::draw) {
      c_.ranks[i] = ~a_.draw.block(index)[0];
    }
  }

  // Of candidate number i of the unit: what it is compared by first.
  __device__ std::uint32_t rank(std::uint32_t i) const {
    if constexpr (kBy == By::score) return c_.ranks[i];
    return rank_of(c_.values[i], factor_);
  }
  // Where it is above the k-th, or ties with it.
  enum class Place { below, ties, above };
  __device__ static Place compare(std::uint32_t rank, std::uint32_t kth) {
    return rank > kth ? Place::above : rank == kth ? Place::ties : Place::below;
  }

  // How many scores reach the floor: all entries that do so are candidates.
  __device__ std::uint32_t count_scores(std::uint32_t floor) {
    std::uint32_t count = 0;
    for (std::uint32_t i = threadIdx.x; i < n_; i += kSelectThreads) count += rank(i) >= floor ? 1 : 0;
    return add_block(count, s_.reach);
  }

  // Calls f(i, wins, number) for all candidates, by all threads in ascending order: `number` winners come before it.
  // Of those that tie, the first `quota` win. Returns how many win.
  template <class PlaceOf, class F>
  __device__ __forceinline__ std::uint32_t for_each_in_order(PlaceOf place_of, std::uint32_t quota, F f) {
    std::uint32_t above = 0;
    std::uint32_t ties = 0;
    for (std::uint32_t at = 0; at < n_; at += kSelectThreads) {
      const std::uint32_t i = at + threadIdx.x;
      const Place place = i < n_ ? place_of(i) : Place::below;
      const bool is_above = place == Place::above;
      const bool is_tie = place == Place::ties && quota > 0;
      // Ties in the upper half.
      std::uint32_t lower = 0;
      std::uint32_t all = 0;
      SelectScan(s_.select.scan).ExclusiveSum((is_above ? 1U : 0U) + (is_tie ? 1U << 16U : 0U), lower, all);
      const std::uint32_t tie = ties + (lower >> 16U);
      if (i < n_) f(i, is_above || (is_tie && tie < quota), above + (lower & 0xFFFFU) + min(tie, quota));
      above += all & 0xFFFFU;
      ties += all >> 16U;
      __syncthreads();
    }
    return above + min(ties, quota);
  }

  // Writes a winner to the slots of the unit, or puts the candidate back.
  __device__ void settle(std::uint32_t i, bool wins, std::uint32_t number) {
    const std::uint32_t index = c_.indices[i];
    const float value = c_.values[i];
    if (wins) {
      const std::uint32_t to = a_.slots[blockIdx.x] + number;
      a_.out_indices[to] = index;
      a_.out_values[to] = value;
    } else {
      a_.memory[index] = value;
    }
  }

  // Of those that win by the first choice, the k with the smallest hashes.
  template <class PlaceOf>
  __device__ std::uint32_t draw(std::uint32_t k, PlaceOf first, std::uint32_t first_quota) {
    for_each_in_order(first, first_quota,
                      [&](std::uint32_t i, bool wins, std::uint32_t) { c_.wins[i] = wins ? 1 : 0; });
    const auto has_won = [&](std::uint32_t i) { return c_.wins[i] != 0; };
    const uint2 kth = find_kth_of(
        n_, k, s_.select, [&](std::uint32_t i) { return c_.ranks[i]; }, has_won);
    return for_each_in_order([&](std::uint32_t i) { return has_won(i) ? compare(c_.ranks[i], kth.x) : Place::below; },
                             kth.y, [&](std::uint32_t i, bool wins, std::uint32_t number) { settle(i, wins, number); });
  }

  const CandidateArguments& a_;
  ChooseShared& s_;
  UnitTiles range_;
  std::uint32_t k_;
  float factor_;
  std::uint32_t* before_;  // of the tiles of the unit
  std::uint32_t n_ = 0;
  GatheredCandidates c_ = {};
};

// Chooses among the candidates of each unit: writes the winners to its slots, and puts the others back. One block for
// each unit. If the candidates of a unit do not suffice, those of all have to be put back.
template <By kBy>
__global__ void __launch_bounds__(kSelectThreads) choose_candidates(const __grid_constant__ CandidateArguments a) {
  extern __shared__ __align__(16) unsigned char room[];
  ChooseShared& s = *reinterpret_cast<ChooseShared*>(room);
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the pass has ended
#endif
  UnitCandidates<kBy>(a, s).choose();
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
