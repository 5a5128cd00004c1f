// What a step came to: the norms of all tiles, the result for the host, and the guess for the next step.
#pragma once

#include "kernels/cuda/finish.cuh"

namespace sparsewire::cuda {

// All blocks come here, or none.
template <By kBy>
__device__ void Finish<kBy>::fail(std::uint32_t outcome) {
  if (blockIdx.x != 0 || threadIdx.x >= 32) return;
  StepResult r;
  r.outcome = outcome;
  r.bad = a_.control->failure.bad;
  r.found = found_;
  publish(r);
}

// By the first warp; the result is that of its first lane.
template <By kBy>
__device__ void Finish<kBy>::publish(const StepResult& r) {
  if (threadIdx.x == 0) s_.result = r;
  __syncwarp();
  if (threadIdx.x >= kResultWords) return;
  const std::uint64_t word = reinterpret_cast<const std::uint32_t*>(&s_.result)[threadIdx.x];
  const_cast<volatile std::uint64_t&>(a_.result->words[threadIdx.x]) = std::uint64_t{a_.epoch} << 32U | word;
}

// The pass has written the norms of the sums. Of few groups they are added up before they are needed: a slice by the
// block that has its first tile. By the last warp, while the others read messages.
template <By kBy>
__device__ void Finish<kBy>::add_accumulated() {
  if (has_accumulated_ || !has_few_groups()) return;
  has_accumulated_ = true;
  if (threadIdx.x / 32 != kFinishWarps - 1) return;
  const auto first = static_cast<std::uint32_t>(candidates_.first_tile());
  for (std::uint32_t slice = (first + kSlice - 1) / kSlice; slice * kSlice < first + candidates_.tiles(); ++slice) {
    const double sum = add_slice<8>(a_.tile_norms, slice, static_cast<std::uint32_t>(a_.tiles_count));
    if (threadIdx.x % 32 == 0) __stcg(a_.control->slice_norms + slice, sum);
  }
}

// Few groups have one counter: whoever comes last adds up all. To be called after add_accumulated(). By the last warp,
// which has no candidates where they are few: then no entry waits for the counter.
template <By kBy>
__device__ void Finish<kBy>::announce_norms() {
  if (!has_few_groups()) return;
  __syncthreads();
  if (threadIdx.x != kFinishThreads - 32) return;
  __threadfence();
  s_.is_last = atomicAdd(&a_.control->groups_done, candidates_.tiles()) + candidates_.tiles() == a_.tiles_count;
  __threadfence();
}

// Of more groups: whoever completes one, of 4096 tiles, adds it up, and whoever completes the groups publishes the
// result.
template <By kBy>
__device__ void Finish<kBy>::add_norms() {
  if (candidates_.tiles() == 0) return;
  if (has_few_groups()) {
    __syncthreads();
    if (s_.is_last != 0) end(add_few_groups());
    return;
  }
  const std::size_t groups = (a_.tiles_count + kTile - 1) / kTile;
  for (std::size_t g = candidates_.first_tile() / kTile;
       g <= (candidates_.first_tile() + candidates_.tiles() - 1) / kTile; ++g) {
    const std::size_t size = min(a_.tiles_count - g * kTile, std::size_t{kTile});
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      const std::size_t begin = max(candidates_.first_tile(), g * kTile);
      const auto mine =
          static_cast<std::uint32_t>(min(candidates_.first_tile() + candidates_.tiles(), (g + 1) * kTile) - begin);
      s_.is_last = atomicAdd(a_.group_counts + g, mine) + mine == size ? 1 : 0;
      __threadfence();
    }
    __syncthreads();
    if (s_.is_last == 0) continue;
    const double sum = add_many(a_.tile_norms + g * kTile, size, s_);
    if (threadIdx.x == 0) {
      a_.group_counts[g] = 0;
      __stcg(a_.group_norms + g, sum);
      __threadfence();
      s_.is_last = atomicAdd(&a_.control->groups_done, 1) + 1 == groups ? 1 : 0;
      __threadfence();
    }
    __syncthreads();
    if (s_.is_last != 0) end(add_up_groups(groups));
  }
}

template <By kBy>
__device__ double Finish<kBy>::add_up_groups(std::size_t groups) {
  if (groups > 32) return add_many(a_.group_norms, groups, s_);
  return threadIdx.x < 32 ? add_few(a_.group_norms, groups) : 0;
}

template <By kBy>
__device__ double Finish<kBy>::add_few_groups() {
  if (threadIdx.x >= 32) return 0;
  const bool has_slice = threadIdx.x < kMostSlices && threadIdx.x * kSlice < a_.tiles_count;
  return add_groups_of_slices(has_slice ? __ldcg(a_.control->slice_norms + threadIdx.x) : 0);
}

// By the last block; thread 0 has the norm. Others may still write entries, but read nothing any more: the host only
// queues what follows on the same stream.
template <By kBy>
__device__ void Finish<kBy>::end(double norm2) {
  if constexpr (kBy == By::all) {  // all others have read it, or have no candidates
    if (threadIdx.x < kArenas) a_.control->used[threadIdx.x].value = 0;
  }
  if (threadIdx.x >= 32) return;
  StepResult r;
  r.count = total_;
  r.accumulated_norm2 = norm2;
  r.kth = quota_ == kAllWin ? 0 : kth_;
  r.found = found_;
  publish(r);
  if (threadIdx.x != 0) return;
  a_.control->groups_done = 0;
  if constexpr (kBy != By::all) guess(*a_.control);
}

// The threshold of the next step: slightly below the k-th magnitude, so that somewhat more than k are above it. It
// affects the speed only.
template <By kBy>
__device__ void Finish<kBy>::guess(Control& control) const {
  if (quota_ == kAllWin) {  // at most k non-zero entries
    control.threshold = kLowestKey;
    return;
  }
  const float beyond = static_cast<float>(found_ - fell_) - static_cast<float>(a_.k);
  const float factor = (static_cast<float>(a_.wanted) - static_cast<float>(a_.k)) / fmaxf(beyond, 1.0F);
  control.margin = fminf(fmaxf(control.margin * fminf(fmaxf(factor, 0.5F), 2.0F), 1e-4F), 0.5F);
  control.threshold = max(kLowestKey, key(__uint_as_float(kth_) * (1 - control.margin)));
}

}  // namespace sparsewire::cuda
