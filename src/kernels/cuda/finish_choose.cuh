// Which candidates are sent: all, or those up to the k-th largest magnitude or score.
#pragma once

#include "kernels/cuda/finish.cuh"

namespace sparsewire::cuda {

template <By kBy>
__device__ void Finish<kBy>::run() {
  const std::uint32_t used = threadIdx.x < kArenas ? a_.control->used[threadIdx.x].value : 0;
  const std::uint32_t outcome = a_.control->failure.outcome;
  const std::uint32_t threshold = a_.threshold != 0 ? a_.threshold : a_.control->threshold;
  if constexpr (kBy == By::all) {
    run_all(used, outcome);
  } else {
    const FineBins fine(a_);
    has_uncounted_ = a_.control->has_uncounted;
    NearKth near;
    candidates_.load_first();
    candidates_.gather_first([&] {
      const uint2 sums = block_sum(used, fine.sum(), s_);
      found_ = sums.x;
      if constexpr (kBy == By::score) return;  // the bins are not those of scores yet
      if (found_ > a_.k) near = find_bin_of_kth(fine, sums.y, threshold);
    });
    if (outcome != kDone) return fail(outcome);
    if (a_.k > found_ && threshold > kLowestKey) return fail(kTooFew);
    kth_ = threshold;
    quota_ = kAllWin;
    // By score k candidates are not enough: one of them may be worse than an entry below the threshold.
    const bool has_more = found_ > a_.k || (kBy == By::score && threshold > kLowestKey);
    bool all_ties_win = true;
    bool is_counted = false;
    if (has_more) {
      if constexpr (kBy == By::score) {
        if (!count_scores(threshold)) return fail(kTooFew);
        const FineBins scores(a_);
        const std::uint32_t in_window = block_sum(scores.sum(), 0, s_).x;
        near = find_bin_of_kth(scores, in_window, threshold);
      }
      const Kth kth = find_kth(near, threshold, is_counted);
      kth_ = kth.key;
      quota_ = kth.quota;
      rounds_ = kth.rounds;
      all_ties_win = kth.ties == kth.quota;
    }
    total_ = quota_ == kAllWin ? found_ : static_cast<std::uint32_t>(a_.k);
    const auto nothing = [](const Part&) {};
    const auto verdict = [&](std::uint32_t i) { return verdict_of(i); };
    if constexpr (kBy == By::draw) {
      if (total_ > a_.k_drawn) {
        if (!all_ties_win || !draw_fast()) {
          count_winners(nothing, verdict);
          draw();
        }
        add_norms();
        return;
      }
    }
    if (!is_counted) count_winners(nothing, verdict);
    clear();
    write(nothing, verdict, quota_);
    add_norms();
  }
}

// Every candidate wins. A block waits only for those before it, which have started before it.
template <By kBy>
__device__ void Finish<kBy>::run_all(std::uint32_t used, std::uint32_t outcome) {
  if (outcome != kDone) {
    found_ = block_sum(used, 0, s_).x;
    return fail(outcome);
  }
  if (candidates_.tiles() == 0) return;  // nobody waits for it
  const Messages messages{a_.epoch};
  std::uint32_t count = candidates_.load_first();
  if (candidates_.tiles() > kTileRoom) count = count_all();
  if (threadIdx.x == 0) messages.write(&a_.control->near_counts[blockIdx.x].first, count);
  candidates_.gather_first([] {});
  add_accumulated();
  std::uint32_t before = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kFinishThreads) {
    before += messages.read(&a_.control->near_counts[b].first);
  }
  const uint2 sums = block_sum(before, used, s_);
  above_ = sums.x;
  found_ = total_ = sums.y;
  quota_ = kAllWin;
  write([](const Part&) {}, [](std::uint32_t) { return Verdict::wins; }, 0);
  add_norms();
}

// How many candidates the block has.
template <By kBy>
__device__ std::uint32_t Finish<kBy>::count_all() {
  std::uint32_t mine = 0;
  for (std::uint32_t t = threadIdx.x; t < candidates_.tiles(); t += kFinishThreads) {
    mine += a_.tiles[candidates_.first_tile() + t].count;
  }
  return block_sum(mine, 0, s_).x;
}

// REQUIRES: the sum of the bins.
template <By kBy>
__device__ __forceinline__ NearKth Finish<kBy>::find_bin_of_kth(const FineBins& fine, std::uint32_t sum,
                                                                std::uint32_t threshold) {
  if (has_uncounted_ != 0) return {};
  return find_near(fine, sum, threshold, found_ - fell_, static_cast<std::uint32_t>(a_.k), s_);
}

// The k-th largest key, and how many of the candidates that have it win: those with the lowest indices. is_counted:
// above_ and ties_ are known, too.
template <By kBy>
__device__ Kth Finish<kBy>::find_kth(const NearKth& near, std::uint32_t threshold, bool& is_counted) {
  const auto k = static_cast<std::uint32_t>(a_.k);
  const auto search = [&](std::uint64_t low, std::uint64_t high, std::uint32_t rank, std::uint32_t shift) {
    return search_kth(
        a_, s_, candidates_, barrier_, low, high, rank, shift, 0, [](const Part&) {},
        [&](std::uint32_t i) { return candidates_.rank(i); }, [](std::uint32_t) { return true; });
  };
  if (has_uncounted_ != 0) return search(threshold, kInfinityKey, k, 12);
  if (near.rank == 0) return search(threshold + (kFine << kFineShift), kInfinityKey, k, 12);
  const NearChoice choice = choose_near(a_, s_, candidates_, near, [&] {
    if constexpr (kBy == By::magnitude) add_accumulated();  // of others the registers do not suffice
  });
  if (!choice.is_known) return search(near.low, std::uint64_t{near.low} + kFineKeys, near.rank, 0);
  is_counted = true;
  above_ = choice.above;
  ties_ = choice.ties;
  return choice.kth;
}

// The pass has counted magnitudes: moves the entries of the last round to the bins of their scores. Returns whether
// enough scores reach the threshold.
template <By kBy>
__device__ bool Finish<kBy>::count_scores(std::uint32_t threshold) {
  std::uint32_t fell = 0;
  candidates_.for_each_part([&](const Part& part) {
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      const std::uint32_t before = key(s_.value[i]);
      const std::uint32_t now = candidates_.rank(i);
      if (now == before) continue;
      const std::uint32_t from = (before - threshold) >> kFineShift;
      const std::uint32_t to = (now - threshold) >> kFineShift;
      if (from < kFine) atomicSub(a_.fine + from, 1);
      if (now < threshold) {
        ++fell;
      } else if (to < kFine) {
        atomicAdd(a_.fine + to, 1);
      }
    }
  });
  fell = block_sum(fell, 0, s_).x;
  if (threadIdx.x == 0 && fell > 0) atomicAdd(&a_.control->fell, fell);
  barrier_.arrive();
  barrier_.wait();
  fell_ = __ldcg(&a_.control->fell);
  return found_ - fell_ >= a_.k;
}

}  // namespace sparsewire::cuda
