// rTop-k's draw: of the largest, those with the smallest hashes are sent.
#pragma once

#include "kernels/cuda/finish.cuh"

namespace sparsewire::cuda {

// Of those that have won, the k with the smallest hashes are sent. Bins of the first 11 bits find those near the k-th
// hash: some hundred, of which all blocks get a list. Returns false if they are too many. REQUIRES: all that are
// equal to the k-th magnitude have won.
template <By kBy>
__device__ bool Finish<kBy>::draw_fast() {
  constexpr unsigned kShift = 32 - 11;
  const auto has_won = [&](std::uint32_t i) { return quota_ == kAllWin || candidates_.rank(i) >= kth_; };
  const auto for_each_winner = [&](auto f) {
    candidates_.for_each_part([&](const Part& part) {
      for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
        if (has_won(i)) f(i, drawn_key(i));
      }
    });
  };
  for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) s_.bins[i] = 0;
  __syncthreads();
  for_each_winner([&](std::uint32_t, std::uint32_t one) { atomicAdd(&s_.bins[one >> kShift], 1); });
  __syncthreads();
  std::uint32_t* const all = a_.control->bins[rounds_++];
  for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) {
    if (s_.bins[i] != 0) atomicAdd(all + i, s_.bins[i]);
  }
  barrier_.arrive();
  barrier_.wait();
  const uint3 found = find_bin([&](std::uint32_t i) { return __ldcg(all + i); }, a_.k_drawn, s_);
  if (found.z > kListed) return false;

  std::uint32_t above = 0;
  for (unsigned i = threadIdx.x; i < kBins; i += kFinishThreads) above += i > found.x ? s_.bins[i] : 0;
  above = block_sum(above, 0, s_).x;
  if (threadIdx.x == 0) __stcg(a_.control->above + blockIdx.x, above);
  for_each_winner([&](std::uint32_t i, std::uint32_t one) {
    if (one >> kShift == found.x)
      a_.control->list[atomicAdd(&a_.control->listed, 1)] = {one, s_.index[i], blockIdx.x};
  });
  barrier_.arrive();
  barrier_.wait();

  std::uint32_t* const keys = s_.bins;
  std::uint32_t* const indices = s_.bins + kListed;
  for (unsigned i = threadIdx.x; i < found.z; i += kFinishThreads) {
    keys[i] = __ldcg(&a_.control->list[i].key);
    indices[i] = __ldcg(&a_.control->list[i].index);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < found.z; i += kFinishThreads) {
    std::uint32_t better = found.y;
    for (unsigned j = 0; j < found.z; ++j) {
      better += keys[j] > keys[i] || (keys[j] == keys[i] && indices[j] < indices[i]) ? 1 : 0;
    }
    if (better + 1 == a_.k_drawn) {
      s_.found[0] = keys[i];
      s_.found[1] = indices[i];
    }
  }
  __syncthreads();
  const std::uint32_t last_key = s_.found[0];
  const std::uint32_t last_index = s_.found[1];
  const auto is_drawn = [&](std::uint32_t one, std::uint32_t index) {
    return one > last_key || (one == last_key && index <= last_index);
  };
  above = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kFinishThreads) above += __ldcg(a_.control->above + b);
  for (unsigned i = threadIdx.x; i < found.z; i += kFinishThreads) {
    above += __ldcg(&a_.control->list[i].block) < blockIdx.x && is_drawn(keys[i], indices[i]) ? 1 : 0;
  }
  above_ = block_sum(above, 0, s_).x;
  ties_ = 0;
  total_ = a_.k_drawn;
  clear();
  write([](const Part&) {},
        [&](std::uint32_t i) {
          return has_won(i) && is_drawn(drawn_key(i), s_.index[i]) ? Verdict::wins : Verdict::loses;
        },
        0);
  return true;
}

// The same without such requirements.
template <By kBy>
__device__ void Finish<kBy>::draw() {
  const std::uint32_t first_ties = ties_;
  const std::uint32_t first_quota = quota_;
  std::uint32_t ties = 0;
  bool is_marked = false;
  // Sets `place` of the candidates in shared memory to 1 if they have won.
  const auto mark = [&](const Part& part) {
    if (part.tile == 0) ties = first_ties;
    if (is_marked && part.tile == 0 && part.end == candidates_.tiles()) return;  // all are there, and still marked
    is_marked = true;
    for (std::uint32_t at = 0; at < part.count; at += kFinishThreads) {
      const std::uint32_t i = at + threadIdx.x;
      const Verdict one = i < part.count ? verdict_of(i) : Verdict::loses;
      const Scan equal = block_scan(one == Verdict::ties ? 1 : 0, s_);
      if (i < part.count)
        s_.place[i] = one == Verdict::wins || (one == Verdict::ties && ties + equal.through <= first_quota) ? 1 : 0;
      ties += equal.all;
    }
    __syncthreads();
  };
  const auto key_of = [&](std::uint32_t i) { return drawn_key(i); };
  const Kth kth = search_kth(a_, s_, candidates_, barrier_, 0, std::uint64_t{1} << 32U, a_.k_drawn, 21, rounds_, mark,
                             key_of, [&](std::uint32_t i) { return s_.place[i] != 0; });
  rounds_ = kth.rounds;
  const auto verdict = [&](std::uint32_t i) {
    if (s_.place[i] == 0) return Verdict::loses;
    const std::uint32_t one = key_of(i);
    return one > kth.key ? Verdict::wins : one == kth.key ? Verdict::ties : Verdict::loses;
  };
  count_winners(mark, verdict);
  clear();
  total_ = a_.k_drawn;
  write(mark, verdict, kth.quota);
}

}  // namespace sparsewire::cuda
