// Which of the candidates win: the k-th largest key of all blocks, and how many of those that have it.
//
// The pass has counted the keys that are slightly above its threshold one by one; the k-th is nearly always among
// these. If it is not, it is searched, in rounds of bins that all blocks share.
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

// How many bins of the pass a block adds up, and one of them.
__device__ inline std::uint32_t fine_per_block(const FinishArguments& a) {
  return (a.window + gridDim.x - 1) / gridDim.x;
}
__device__ inline std::uint32_t fine_bin(const FinishArguments& a, unsigned block, std::uint32_t i) {
  const std::uint32_t at = block * fine_per_block(a) + i;
  return at < a.window ? __ldcg(a.fine + at) : 0;
}

// The bin in which entry number `rank` from the top is, how many are in those above, and in this one.
template <class Bin>
__device__ inline uint3 find_bin(Bin bin, std::uint32_t rank, BlockShared& s) {
  constexpr unsigned kEach = kBins / kFinishThreads;
  std::uint32_t mine[kEach];  // thread 0 has the highest
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < kEach; ++i) sum += mine[i] = bin(kBins - 1 - (threadIdx.x * kEach + i));
  const std::uint32_t through = block_scan(sum, s);
  std::uint32_t before = through - sum;
  if (before < rank && rank <= through) {
    for (unsigned i = 0; i < kEach; ++i) {
      if (rank <= before + mine[i]) {
        s.found[0] = kBins - 1 - (threadIdx.x * kEach + i);
        s.found[1] = before;
        s.found[2] = mine[i];
        break;
      }
      before += mine[i];
    }
  }
  __syncthreads();
  return {s.found[0], s.found[1], s.found[2]};
}

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

// The k-th largest key, and how many of the candidates that have it win: those with the lowest indices.
template <By kBy>
__device__ inline Kth find_kth(const FinishArguments& a, FinishShared<kBy>& s, BlockCandidates<kBy>& candidates,
                               GridBarrier& barrier, std::uint32_t threshold, std::uint32_t found_in_all) {
  auto rank = static_cast<std::uint32_t>(a.k);
  // Thread t has the sum of block number gridDim - 1 - t: from the top.
  static_assert(kMostBlocks <= 2 * kFinishThreads);
  std::uint32_t mine[2];
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned from_top = 2 * threadIdx.x + i;
    mine[i] = from_top < gridDim.x ? __ldcg(a.control->fine_sums + (gridDim.x - 1 - from_top)) : 0;
  }
  const std::uint32_t through = block_scan(mine[0] + mine[1], s);
  if (threadIdx.x == kFinishThreads - 1) s.found[0] = through;
  __syncthreads();
  const std::uint32_t above_window = found_in_all - s.found[0];
  __syncthreads();
  if (above_window >= rank) {
    return search_kth(
        a, s, candidates, barrier, threshold + a.window, kInfinityKey, rank, 12, 0, [](const Part&) {},
        [&](std::uint32_t i) { return candidates.rank(i); }, [](std::uint32_t) { return true; });
  }
  rank -= above_window;
  const std::uint32_t before = through - mine[0] - mine[1];
  if (before < rank && rank <= through) {
    const bool is_first = rank <= before + mine[0];
    s.found[0] = gridDim.x - 1 - (2 * threadIdx.x + (is_first ? 0 : 1));
    s.found[1] = is_first ? before : before + mine[0];
  }
  __syncthreads();
  const std::uint32_t block = s.found[0];
  rank -= s.found[1];
  const uint3 found =
      find_bin([&](std::uint32_t i) { return i < fine_per_block(a) ? fine_bin(a, block, i) : 0; }, rank, s);
  return {threshold + block * fine_per_block(a) + found.x, rank - found.y, found.z, 0};
}

}  // namespace sparsewire::cuda
