// Chooses among the candidates of a pass: finds the k-th key, writes the winners in ascending order of their indices,
// puts the others back, and adds up the norms. One cooperative kernel: two barriers between all blocks cost less than
// as many launches.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/finish_block.cuh"
#include "kernels/cuda/finish_candidates.cuh"
#include "kernels/cuda/finish_kth.cuh"

namespace sparsewire::cuda {

template <By kBy>
class Finish {
 public:
  __device__ Finish(const FinishArguments& a, FinishShared<kBy>& s)
      : a_(a), s_(s), candidates_(a, s), barrier_(a.control) {}

  __device__ void run() {
    const std::uint32_t used = threadIdx.x < kArenas ? a_.control->used[threadIdx.x].value : 0;
    const std::uint32_t outcome = a_.control->failure.outcome;
    const std::uint32_t threshold = a_.threshold != 0 ? a_.threshold : a_.control->threshold;
    const std::uint32_t in_window = kBy == By::score || a_.k == 0 ? 0 : count_in_window();
    const uint2 sums = block_sum(used, in_window, s_);
    found_ = sums.x;
    if (outcome != kDone) return fail(outcome);
    if (a_.k > found_ && threshold > kLowestKey) return fail(kTooFew);
    kth_ = threshold;
    quota_ = kAllWin;
    bool all_ties_win = true;
    // By score k candidates are not enough: one of them may be worse than an entry below the threshold.
    const bool has_more = found_ > a_.k || (kBy == By::score && threshold > kLowestKey);
    if (a_.k == 0 || !has_more) {
      candidates_.gather_first();
    } else {
      if constexpr (kBy == By::score) {
        candidates_.gather_first();
        if (!count_scores(threshold)) return fail(kTooFew);
      } else {
        if (threadIdx.x == 0) a_.control->fine_sums[blockIdx.x] = sums.y;
        barrier_.arrive();
        candidates_.gather_first();
        barrier_.wait();
      }
      const Kth kth = find_kth(a_, s_, candidates_, barrier_, threshold, found_ - fell_);
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
    count_winners(nothing, verdict);
    clear();
    write(nothing, verdict, quota_);
    add_norms();
  }

 private:
  // Of a candidate: one of those that are equal to the k-th wins if it is one of the first.
  enum class Verdict { loses, ties, wins };

  __device__ Verdict verdict_of(std::uint32_t i) const {
    if (quota_ == kAllWin) return Verdict::wins;
    const std::uint32_t rank = candidates_.rank(i);
    return rank > kth_ ? Verdict::wins : rank == kth_ ? Verdict::ties : Verdict::loses;
  }

  // Those that the pass counted in the bins of this block.
  __device__ std::uint32_t count_in_window() const {
    std::uint32_t count = 0;
    for (unsigned i = threadIdx.x; i < fine_per_block(a_); i += kFinishThreads) {
      count += fine_bin(a_, blockIdx.x, i);
    }
    return count;
  }

  // The pass has counted magnitudes: moves the entries of the last round to the bins of their scores. Returns whether
  // enough scores reach the threshold.
  __device__ bool count_scores(std::uint32_t threshold) {
    std::uint32_t fell = 0;
    candidates_.for_each_part([&](const Part& part) {
      for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
        const std::uint32_t before = key(s_.value[i]);
        const std::uint32_t now = candidates_.rank(i);
        if (now == before) continue;
        if (before - threshold < a_.window) atomicSub(a_.fine + (before - threshold), 1);
        if (now < threshold) {
          ++fell;
        } else if (now - threshold < a_.window) {
          atomicAdd(a_.fine + (now - threshold), 1);
        }
      }
    });
    fell = block_sum(fell, 0, s_).x;
    if (threadIdx.x == 0 && fell > 0) atomicAdd(&a_.control->fell, fell);
    barrier_.arrive();
    barrier_.wait();
    fell_ = __ldcg(&a_.control->fell);
    if (found_ - fell_ < a_.k) return false;
    const std::uint32_t in_window = block_sum(count_in_window(), 0, s_).x;
    if (threadIdx.x == 0) a_.control->fine_sums[blockIdx.x] = in_window;
    barrier_.arrive();
    barrier_.wait();
    return true;
  }

  __device__ std::uint32_t drawn_key(std::uint32_t i) const { return ~a_.draw.block(s_.index[i])[0]; }

  // Of those that have won, the k with the smallest hashes are sent. Bins of the first 11 bits find those near the k-th
  // hash: some hundred, of which all blocks get a list. Returns false if they are too many. REQUIRES: all that are
  // equal to the k-th magnitude have won.
  __device__ bool draw_fast() {
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
  __device__ void draw() {
    const std::uint32_t first_ties = ties_;
    const std::uint32_t first_quota = quota_;
    std::uint32_t ties = 0;
    bool is_marked = false;
    // Sets `wins` of the candidates in shared memory.
    const auto mark = [&](const Part& part) {
      if (part.tile == 0) ties = first_ties;
      if (is_marked && part.tile == 0 && part.end == candidates_.tiles()) return;  // all are there, and still marked
      is_marked = true;
      for (std::uint32_t at = 0; at < part.count; at += kFinishThreads) {
        const std::uint32_t i = at + threadIdx.x;
        const Verdict one = i < part.count ? verdict_of(i) : Verdict::loses;
        const std::uint32_t through = ties + block_scan(one == Verdict::ties ? 1 : 0, s_);
        if (threadIdx.x == kFinishThreads - 1) s_.found[0] = through;
        if (i < part.count)
          s_.wins[i] = one == Verdict::wins || (one == Verdict::ties && through <= first_quota) ? 1 : 0;
        __syncthreads();
        ties = s_.found[0];
      }
      __syncthreads();
    };
    const auto key_of = [&](std::uint32_t i) { return drawn_key(i); };
    const Kth kth = search_kth(a_, s_, candidates_, barrier_, 0, std::uint64_t{1} << 32U, a_.k_drawn, 21, rounds_, mark,
                               key_of, [&](std::uint32_t i) { return s_.wins[i] != 0; });
    rounds_ = kth.rounds;
    const auto verdict = [&](std::uint32_t i) {
      if (s_.wins[i] == 0) return Verdict::loses;
      const std::uint32_t one = key_of(i);
      return one > kth.key ? Verdict::wins : one == kth.key ? Verdict::ties : Verdict::loses;
    };
    count_winners(mark, verdict);
    clear();
    total_ = a_.k_drawn;
    write(mark, verdict, kth.quota);
  }

  // All blocks come here, or none.
  __device__ void fail(std::uint32_t outcome) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    StepResult r;
    r.outcome = outcome;
    r.bad = a_.control->failure.bad;
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

  // How many come before those of this block: above_ and ties_. begin(part) is called before the verdicts.
  template <class Begin, class Of>
  __device__ __forceinline__ void count_winners(Begin begin, Of verdict) {
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
  __device__ void clear() {
    if (a_.k != 0) {
      for (unsigned i = threadIdx.x; i < fine_per_block(a_); i += kFinishThreads) {
        if (blockIdx.x * fine_per_block(a_) + i < a_.window) a_.fine[blockIdx.x * fine_per_block(a_) + i] = 0;
      }
    }
    for (unsigned i = blockIdx.x * kFinishThreads + threadIdx.x; i < static_cast<unsigned>(rounds_) * kBins;
         i += gridDim.x * kFinishThreads) {
      a_.control->bins[0][i] = 0;
    }
    if (blockIdx.x == 0 && threadIdx.x < kArenas) a_.control->used[threadIdx.x].value = 0;
  }

  // Writes those that win, and those that tie as long as they are fewer than `quota`; puts the others back.
  template <class Begin, class Of>
  __device__ __forceinline__ void write(Begin begin, Of verdict, std::uint32_t quota) {
    candidates_.for_each_part([&](const Part& part) {
      begin(part);
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
        if (wins) {
          const std::uint32_t to = above + min(ties, quota);
          a_.out_indices[to] = s_.index[i];
          a_.out_values[to] = s_.value[i];
        } else if (is_there) {
          a_.memory[s_.index[i]] = s_.value[i];
        }
        if (is_there) s_.wins[i] = wins ? 1 : 0;
      }
      __syncthreads();
      for (std::uint32_t t = part.tile + threadIdx.x / 32; t < part.end; t += kFinishWarps) add_sent(t, t - part.tile);
    });
  }

  // The squares of the winners of a tile, by one warp.
  __device__ void add_sent(std::uint32_t tile, std::uint32_t in_part) {
    const double sum = square_few(s_.begin[in_part], s_.begin[in_part + 1], s_.squares[threadIdx.x / 32],
                                  [&](std::uint32_t i) -> MaybeSent {
                                    return {s_.wins[i] != 0, s_.index[i] % static_cast<unsigned>(kTile), s_.value[i]};
                                  });
    if (threadIdx.x % 32 == 0) a_.sent_norms[candidates_.first_tile() + tile] = sum;
  }

  // Whoever completes a group of 4096 tiles adds it up, and whoever completes the groups publishes the result.
  __device__ void add_norms() {
    if (candidates_.tiles() == 0) return;
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
    const float beyond = static_cast<float>(found_ - fell_) - static_cast<float>(a_.k);
    const float factor = (static_cast<float>(a_.wanted) - static_cast<float>(a_.k)) / fmaxf(beyond, 1.0F);
    control.margin = fminf(fmaxf(control.margin * fminf(fmaxf(factor, 0.5F), 2.0F), 1e-4F), 0.5F);
    control.threshold = max(kLowestKey, key(__uint_as_float(kth_) * (1 - control.margin)));
  }

  const FinishArguments& a_;
  FinishShared<kBy>& s_;
  BlockCandidates<kBy> candidates_;
  GridBarrier barrier_;
  std::uint32_t found_ = 0;
  std::uint32_t fell_ = 0;  // of these, whose score is below the threshold
  std::uint32_t kth_ = 0;
  std::uint32_t quota_ = 0;  // of candidates equal to the k-th; kAllWin: every candidate wins
  std::uint32_t above_ = 0;  // winners before those at hand
  std::uint32_t ties_ = 0;
  std::uint32_t total_ = 0;
  int rounds_ = 0;  // of the search for the k-th
};

template <By kBy>
__global__ void __launch_bounds__(kFinishThreads, 2) finish(const __grid_constant__ FinishArguments a) {
  extern __shared__ __align__(16) unsigned char room[];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the pass has ended
#endif
  Finish<kBy>(a, *reinterpret_cast<FinishShared<kBy>*>(room)).run();
}

}  // namespace sparsewire::cuda
