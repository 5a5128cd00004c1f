// Writes the winners, and puts the other candidates back.
#pragma once

#include "kernels/cuda/finish.cuh"

namespace sparsewire::cuda {

// How many come before those of this block: above_ and ties_. begin(part) is called before the verdicts.
template <By kBy>
template <class Begin, class Of>
__device__ __forceinline__ void Finish<kBy>::count_winners(Begin begin, Of verdict) {
  std::uint32_t above = 0;
  std::uint32_t ties = 0;
  candidates_.for_each_part([&](const Part& part) {
    begin(part);
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      above += verdict(i) == Verdict::wins ? 1 : 0;
      ties += verdict(i) == Verdict::ties ? 1 : 0;
    }
  });
  const uint2 mine = block_sum(above, ties, s_);
  if (threadIdx.x == 0) {
    __stcg(a_.control->above + blockIdx.x, mine.x);
    __stcg(a_.control->ties + blockIdx.x, mine.y);
  }
  barrier_.arrive();
  barrier_.wait();
  above = ties = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kFinishThreads) {
    above += __ldcg(a_.control->above + b);
    ties += __ldcg(a_.control->ties + b);
  }
  const uint2 before = block_sum(above, ties, s_);
  above_ = before.x;
  ties_ = before.y;
}

// Everybody has read the bins, and what the pass counted.
template <By kBy>
__device__ void Finish<kBy>::clear() {
  for (unsigned i = blockIdx.x * kFinishThreads + threadIdx.x; i < kFine; i += gridDim.x * kFinishThreads) {
    a_.fine[i] = 0;
  }
  for (unsigned i = blockIdx.x * kFinishThreads + threadIdx.x; i < static_cast<unsigned>(rounds_) * kBins;
       i += gridDim.x * kFinishThreads) {
    a_.control->bins[0][i] = 0;
  }
  if (blockIdx.x == 0 && threadIdx.x < kArenas) a_.control->used[threadIdx.x].value = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) a_.control->has_uncounted = 0;
}

// Writes those that win, and those that tie as long as they are fewer than `quota`; puts the others back. Who adds up
// the norms does not wait for the entries.
template <By kBy>
template <class Begin, class Of>
__device__ __forceinline__ void Finish<kBy>::write(Begin begin, Of verdict, std::uint32_t quota) {
  add_accumulated();  // unless it was done while waiting
  candidates_.for_each_part([&](const Part& part) {
    begin(part);
    const std::uint32_t before = above_ + min(ties_, quota);
    decide(part, verdict, quota);
    if (part.end == candidates_.tiles()) announce_norms();
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      const std::uint32_t place = s_.place[i];
      if (place != 0) {
        a_.out_indices[before + place - 1] = s_.index[i];
        a_.out_values[before + place - 1] = s_.value[i];
      } else {
        a_.memory[s_.index[i]] = s_.value[i];
      }
    }
  });
}

// Sets `place` of the candidates of a part.
template <By kBy>
template <class Of>
__device__ __forceinline__ void Finish<kBy>::decide(const Part& part, Of verdict, std::uint32_t quota) {
  const std::uint32_t before = above_ + min(ties_, quota);
  for (std::uint32_t at = 0; at < part.count; at += kFinishThreads) {
    const std::uint32_t i = at + threadIdx.x;
    const bool is_there = i < part.count;
    const Verdict one = is_there ? verdict(i) : Verdict::loses;
    const bool is_above = one == Verdict::wins;
    const bool is_tie = one == Verdict::ties;
    const unsigned aboves = __ballot_sync(kAllLanes, is_above);
    const unsigned equals = __ballot_sync(kAllLanes, is_tie);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      s_.warps[threadIdx.x / 32][0] = static_cast<std::uint32_t>(__popc(aboves));
      s_.warps[threadIdx.x / 32][1] = static_cast<std::uint32_t>(__popc(equals));
    }
    __syncthreads();
    std::uint32_t above = above_ + count_before(aboves);
    std::uint32_t ties = ties_ + count_before(equals);
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
    const bool wins = is_above || (is_tie && ties < quota);
    if (is_there) s_.place[i] = wins ? static_cast<std::uint16_t>(above + min(ties, quota) - before + 1) : 0;
  }
  __syncthreads();
}

}  // namespace sparsewire::cuda
