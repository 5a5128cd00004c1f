// Which of the candidates win: the k-th largest key of all blocks, and how many of those that have it.
//
// The pass has counted the keys that are slightly above its threshold in bins; the k-th is nearly always in one of
// these, with few others. If it is not, it is searched, in rounds of bins that all blocks share.
#pragma once

#include "kernels/cuda/finish_candidates.cuh"

namespace sparsewire::cuda {

// Candidates with a larger key win, and the first `quota` of those with this one.
struct Kth {
  std::uint32_t key = 0;
  std::uint32_t quota = 0;
  std::uint32_t ties = 0;  // how many have this one
  int rounds = 0;          // of bins that the search has used
};

// The bin in which entry number `rank` from the top is, how many are in those above, and in this one. Each thread has
// some of the bins, from the top: thread 0 has the highest. REQUIRES: there are so many entries.
template <unsigned kEach>
__device__ inline uint3 find_bin_of(const std::uint32_t (&mine)[kEach], std::uint32_t rank, BlockShared& s) {
  std::uint32_t sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kEach; ++i) sum += mine[i];
  const std::uint32_t through = block_scan(sum, s).through;
  std::uint32_t before = through - sum;
  if (before < rank && rank <= through) {
#pragma unroll
    for (unsigned i = 0; i < kEach; ++i) {
      if (before < rank && rank <= before + mine[i]) {
        s.found[0] = kEach * kFinishThreads - 1 - (threadIdx.x * kEach + i);
        s.found[1] = before;
        s.found[2] = mine[i];
      }
      before += mine[i];
    }
  }
  __syncthreads();
  return {s.found[0], s.found[1], s.found[2]};
}
template <class Bin>
__device__ inline uint3 find_bin(Bin bin, std::uint32_t rank, BlockShared& s) {
  constexpr unsigned kEach = kBins / kFinishThreads;
  std::uint32_t mine[kEach];
#pragma unroll
  for (unsigned i = 0; i < kEach; ++i) mine[i] = bin(kBins - 1 - (threadIdx.x * kEach + i));
  return find_bin_of(mine, rank, s);
}

// Some of the bins of the pass, from the top.
struct FineBins {
  static constexpr unsigned kEach = kFine / kFinishThreads;
  std::uint32_t mine[kEach];

  __device__ explicit FineBins(const FinishArguments& a) {
    const auto* const from = reinterpret_cast<const uint4*>(a.fine) + (kFine - kEach) / 4 - threadIdx.x * (kEach / 4);
#pragma unroll
    for (unsigned i = 0; i < kEach; i += 4) {
      const uint4 four = __ldcg(from + i / 4);
      mine[kEach - 1 - i] = four.x;
      mine[kEach - 2 - i] = four.y;
      mine[kEach - 3 - i] = four.z;
      mine[kEach - 4 - i] = four.w;
    }
  }
  __device__ std::uint32_t sum() const {
    std::uint32_t all = 0;
#pragma unroll
    for (unsigned i = 0; i < kEach; ++i) all += mine[i];
    return all;
  }
};

// Among the candidates with keys in [low, high). Each round divides them into bins of 2^shift keys, the last of which
// has everything above. begin(part) is called first; key_of(i): of candidate i of the part; counts(i): whether it takes
// part in the search. `used`: rounds of bins that other searches of this step have used.
template <By kBy, class Begin, class Key, class Counts>
__device__ inline Kth search_kth(const FinishArguments& a, FinishShared<kBy>& s, BlockCandidates<kBy>& candidates,
                                 GridBarrier& barrier, std::uint64_t low, std::uint64_t high, std::uint32_t rank,
                                 std::uint32_t shift, int used, Begin begin, Key key_of, Counts counts) {
  Kth kth;
  for (int round = used; round < kMostRounds; ++round) {
    for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) s.bins[i] = 0;
    __syncthreads();
    candidates.for_each_part([&](const Part& part) {
      begin(part);
      for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
        const std::uint64_t one = key_of(i);
        if (one >= low && one < high && counts(i)) {
          atomicAdd(&s.bins[min(static_cast<std::uint32_t>((one - low) >> shift), kBins - 1U)], 1);
        }
      }
    });
    __syncthreads();
    std::uint32_t* all = a.control->bins[round];
    for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) {
      if (s.bins[i] != 0) atomicAdd(all + i, s.bins[i]);
    }
    barrier.arrive();
    barrier.wait();
    const uint3 found = find_bin([&](std::uint32_t i) { return __ldcg(all + i); }, rank, s);
    kth.rounds = round + 1;
    kth.ties = found.z;
    rank -= found.y;
    if (found.x == kBins - 1 && high - low > (std::uint64_t{kBins} << shift)) {
      low += std::uint64_t{kBins - 1U} << shift;
      shift = min(shift + 8, 20U);
      continue;
    }
    low += std::uint64_t{found.x} << shift;
    high = min(high, low + (std::uint64_t{1} << shift));
    if (shift == 0) break;
    shift = shift > 11 ? shift - 11 : 0;
  }
  kth.key = static_cast<std::uint32_t>(low);
  kth.quota = rank;
  return kth;
}

// Where the k-th key is, as far as the bins of the pass say it.
struct NearKth {
  std::uint32_t low = 0;   // the first key of its bin
  std::uint32_t rank = 0;  // from the top of its bin; 0: it is above all bins
};

// REQUIRES: `sum`, of the bins of all threads; more than k candidates.
__device__ inline NearKth find_near(const FineBins& fine, std::uint32_t sum, std::uint32_t threshold,
                                    std::uint32_t found_in_all, std::uint32_t k, BlockShared& s) {
  const std::uint32_t above = found_in_all - sum;
  if (above >= k) return {};
  const uint3 found = find_bin_of(fine.mine, k - above, s);
  return {threshold + (found.x << kFineShift), k - above - found.y};
}

// What a block knows when it knows the k-th key.
struct NearChoice {
  Kth kth;
  std::uint32_t above = 0;  // winners in blocks before this one, but ties
  std::uint32_t ties = 0;
  bool is_known = false;
};

// How many keys of a block are in the bin of the k-th, and some of them, in one number: nearly always these are all,
// and nobody has to read more.
struct NearKeys {
  static constexpr unsigned kCountBits = 32 - kNearInside * kFineShift;

  __device__ static std::uint32_t pack(std::uint32_t count, const std::uint32_t* keys) {
    std::uint32_t bits = min(count, kNear + 1);  // more are too many
    for (std::uint32_t i = 0; i < min(count, kNearInside); ++i) bits |= keys[i] << (kCountBits + i * kFineShift);
    return bits;
  }
  __device__ explicit NearKeys(std::uint32_t from) : bits(from) {}
  __device__ std::uint32_t count() const { return bits % (1U << kCountBits); }
  __device__ std::uint32_t key(std::uint32_t i) const { return bits >> (kCountBits + i * kFineShift) & (kFineKeys - 1); }

  std::uint32_t bits;
};
static_assert(kNear + 1 < 1U << NearKeys::kCountBits);

// All blocks tell each other which keys are in the bin of the k-th, and how many are above it. Those in the bin are
// few, mostly; if they are not, nothing is known then. meanwhile() is called before the wait for the others.
template <By kBy, class Meanwhile>
__device__ inline NearChoice choose_near(const FinishArguments& a, FinishShared<kBy>& s,
                                         BlockCandidates<kBy>& candidates, const NearKth& near, Meanwhile meanwhile) {
  const Messages messages{a.epoch};
  auto* const my_keys = reinterpret_cast<std::uint64_t*>(a.control->near_keys[blockIdx.x]);
  if (threadIdx.x == 0) s.near[0] = s.near[1] = s.near_above = 0;
  for (unsigned i = threadIdx.x; i < kFineKeys; i += kFinishThreads) s.near_bins[i] = 0;
  __syncthreads();
  std::uint32_t above = 0;
  candidates.for_each_part([&](const Part& part) {
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      const std::uint32_t rank = candidates.rank(i);
      if (rank < near.low) continue;
      if (rank - near.low >= kFineKeys) {
        ++above;
        continue;
      }
      const std::uint32_t to = atomicAdd(&s.near[0], 1);
      if (to < kNearInside) {
        s.near_inside[to] = rank - near.low;
      } else if (to < kNear) {
        messages.write(my_keys + to, rank - near.low);
      }
    }
  });
  above = __reduce_add_sync(kAllLanes, above);
  if (threadIdx.x % 32 == 0 && above > 0) atomicAdd(&s.near_above, above);
  __syncthreads();
  if (threadIdx.x == 0) {
    messages.write(a.control->near_counts + blockIdx.x, {s.near_above, NearKeys::pack(s.near[0], s.near_inside)});
  }
  meanwhile();

  std::uint32_t* const keys = s.near_list[0];
  std::uint32_t* const blocks = s.near_list[1];
  above = 0;
  bool is_too_many = false;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += kFinishThreads) {
    const uint2 one = messages.read(a.control->near_counts + b);
    if (b < blockIdx.x) above += one.x;
    const NearKeys its(one.y);
    const std::uint32_t count = its.count();
    if (count == 0) continue;
    const std::uint32_t to = atomicAdd(&s.near[1], count);
    if (count > kNear || to + count > kAllNear) {
      is_too_many = true;
      continue;
    }
    const auto* const others = reinterpret_cast<const std::uint64_t*>(a.control->near_keys[b]);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t key = i < kNearInside ? its.key(i) : messages.read(others + i);
      keys[to + i] = key;
      blocks[to + i] = b;
      atomicAdd(&s.near_bins[key], 1);
    }
  }
  NearChoice choice;
  if (__syncthreads_or(is_too_many ? 1 : 0) != 0) return choice;
  if (threadIdx.x < 32) {  // lane 0 has the highest keys
    constexpr unsigned kEach = kFineKeys / 32;
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < kEach; ++i) sum += s.near_bins[kFineKeys - 1 - (threadIdx.x * kEach + i)];
    std::uint32_t through = sum;
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::uint32_t left = __shfl_up_sync(kAllLanes, through, step);
      if (threadIdx.x >= step) through += left;
    }
    std::uint32_t before = through - sum;
    if (before < near.rank && near.rank <= through) {
      for (unsigned i = 0; i < kEach; ++i) {
        const std::uint32_t key = kFineKeys - 1 - (threadIdx.x * kEach + i);
        if (near.rank <= before + s.near_bins[key]) {
          s.found[0] = key;
          s.found[1] = before;
          break;
        }
        before += s.near_bins[key];
      }
    }
  }
  __syncthreads();
  const std::uint32_t kth = s.found[0];
  std::uint32_t ties = 0;
  for (unsigned i = threadIdx.x; i < s.near[1]; i += kFinishThreads) {
    if (blocks[i] >= blockIdx.x) continue;
    above += keys[i] > kth ? 1 : 0;
    ties += keys[i] == kth ? 1 : 0;
  }
  const uint2 before = block_sum(above, ties, s);
  choice.kth = {near.low + kth, near.rank - s.found[1], s.near_bins[kth], 0};
  choice.above = before.x;
  choice.ties = before.y;
  choice.is_known = true;
  return choice;
}

}  // namespace sparsewire::cuda
