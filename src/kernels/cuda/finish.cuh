// Chooses among the candidates of a pass: finds the k-th key, writes the winners in ascending order of their indices,
// puts the others back, and adds up the norms. One kernel, in which all blocks tell each other once what they have near
// the k-th key: that costs less than a launch. Where that does not suffice, they meet at barriers.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/finish_block.cuh"
#include "kernels/cuda/finish_candidates.cuh"
#include "kernels/cuda/finish_kth.cuh"

namespace sparsewire::cuda {

template <By kBy>
__device__ __forceinline__ MaybeSent maybe_sent(const FinishShared<kBy>& s, std::uint32_t i) {
  return {s.wins[i] != 0, s.index[i] % static_cast<unsigned>(kTile), s.value[i]};
}

// The squares of the winners of tiles that have very few candidates. Returns whether there are others. Neighbours are in
// different warps: lanes that do different things wait for each other. Not inlined: its registers would be missing
// elsewhere.
template <By kBy>
__device__ __noinline__ bool square_by_threads(FinishShared<kBy>& s, std::uint32_t tiles, double* norms) {
  bool has_more = false;
  for (std::uint32_t t = threadIdx.x % 32 * kFinishWarps + threadIdx.x / 32; t < tiles; t += kFinishThreads) {
    if (s.begin[t + 1] - s.begin[t] > kVeryFew) {
      has_more = true;
    } else {
      norms[t] = square_very_few<kFinishThreads>(s.begin[t], s.begin[t + 1], s.squares[0] + threadIdx.x,
                                                 [&](std::uint32_t i) { return maybe_sent(s, i); });
    }
  }
  return __syncthreads_or(has_more ? 1 : 0) != 0;
}

template <By kBy>
class Finish {
 public:
  __device__ Finish(const FinishArguments& a, FinishShared<kBy>& s)
      : a_(a), s_(s), candidates_(a, s), barrier_(a.control) {}

  __device__ void run() {
    const std::uint32_t used = threadIdx.x < kArenas ? a_.control->used[threadIdx.x].value : 0;
    const std::uint32_t outcome = a_.control->failure.outcome;
    const std::uint32_t threshold = a_.threshold != 0 ? a_.threshold : a_.control->threshold;
    if constexpr (kBy == By::all) {
      run_all(used, outcome);
    } else {
      FineBins fine(a_);
      has_uncounted_ = a_.control->has_uncounted;
      candidates_.gather_first();
      const uint2 sums = block_sum(used, fine.sum(), s_);
      found_ = sums.x;
      if (outcome != kDone) return fail(outcome);
      if (a_.k > found_ && threshold > kLowestKey) return fail(kTooFew);
      kth_ = threshold;
      quota_ = kAllWin;
      // By score k candidates are not enough: one of them may be worse than an entry below the threshold.
      const bool has_more = found_ > a_.k || (kBy == By::score && threshold > kLowestKey);
      bool all_ties_win = true;
      bool is_counted = false;
      if (has_more) {
        std::uint32_t in_window = sums.y;
        if constexpr (kBy == By::score) {
          if (!count_scores(threshold)) return fail(kTooFew);
          fine = FineBins(a_);
          in_window = block_sum(fine.sum(), 0, s_).x;
        }
        const Kth kth = find_kth(fine, in_window, threshold, is_counted);
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

 private:
  // Of a candidate: one of those that are equal to the k-th wins if it is one of the first.
  enum class Verdict { loses, ties, wins };

  __device__ Verdict verdict_of(std::uint32_t i) const {
    if (quota_ == kAllWin) return Verdict::wins;
    const std::uint32_t rank = candidates_.rank(i);
    return rank > kth_ ? Verdict::wins : rank == kth_ ? Verdict::ties : Verdict::loses;
  }

  // Every candidate wins. A block waits only for those before it, which have started before it.
  __device__ void run_all(std::uint32_t used, std::uint32_t outcome) {
    std::uint32_t mine = 0;
    for (std::uint32_t t = threadIdx.x; t < candidates_.tiles(); t += kFinishThreads) {
      mine += a_.tiles[candidates_.first_tile() + t].count;
    }
    const uint2 sums = block_sum(used, mine, s_);
    found_ = total_ = sums.x;
    quota_ = kAllWin;
    if (outcome != kDone) return fail(outcome);
    const Messages messages{a_.epoch};
    if (threadIdx.x == 0) messages.write(&a_.control->near_counts[blockIdx.x].first, sums.y);
    candidates_.gather_first();
    std::uint32_t before = 0;
    for (unsigned b = threadIdx.x; b < blockIdx.x; b += kFinishThreads) {
      before += messages.read(&a_.control->near_counts[b].first);
    }
    above_ = block_sum(before, 0, s_).x;
    write([](const Part&) {}, [](std::uint32_t) { return Verdict::wins; }, 0);
    add_norms();
  }

  // The k-th largest key, and how many of the candidates that have it win: those with the lowest indices. is_counted:
  // above_ and ties_ are known, too.
  __device__ Kth find_kth(const FineBins& fine, std::uint32_t in_window, std::uint32_t threshold, bool& is_counted) {
    const auto k = static_cast<std::uint32_t>(a_.k);
    const auto search = [&](std::uint64_t low, std::uint64_t high, std::uint32_t rank, std::uint32_t shift) {
      return search_kth(
          a_, s_, candidates_, barrier_, low, high, rank, shift, 0, [](const Part&) {},
          [&](std::uint32_t i) { return candidates_.rank(i); }, [](std::uint32_t) { return true; });
    };
    if (has_uncounted_ != 0) return search(threshold, kInfinityKey, k, 12);
    const NearKth near = find_near(fine, in_window, threshold, found_ - fell_, k, s_);
    if (near.rank == 0) return search(threshold + (kFine << kFineShift), kInfinityKey, k, 12);
    const NearChoice choice = choose_near(a_, s_, candidates_, near);
    if (!choice.is_known) return search(near.low, std::uint64_t{near.low} + kFineKeys, near.rank, 0);
    is_counted = true;
    above_ = choice.above;
    ties_ = choice.ties;
    return choice.kth;
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
    if (blockIdx.x != 0 || threadIdx.x >= 32) return;
    StepResult r;
    r.outcome = outcome;
    r.bad = a_.control->failure.bad;
    r.found = found_;
    publish(r);
  }

  // By the first warp; the result is that of its first lane.
  __device__ void publish(const StepResult& r) {
    if (threadIdx.x == 0) s_.result = r;
    __syncwarp();
    if (threadIdx.x >= kResultWords) return;
    const std::uint64_t word = reinterpret_cast<const std::uint32_t*>(&s_.result)[threadIdx.x];
    const_cast<volatile std::uint64_t&>(a_.result->words[threadIdx.x]) = std::uint64_t{a_.epoch} << 32U | word;
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
      add_sent(part);
    });
  }

  // The squares of the winners of each tile: by one thread where they are very few, else by a warp.
  __device__ void add_sent(const Part& part) {
    const std::uint32_t tiles = part.end - part.tile;
    double* const norms = a_.sent_norms + candidates_.first_tile() + part.tile;
    if (!square_by_threads(s_, tiles, norms)) return;
    for (std::uint32_t t = threadIdx.x / 32; t < tiles; t += kFinishWarps) {
      if (s_.begin[t + 1] - s_.begin[t] <= kVeryFew) continue;
      const double sum = square_few(s_.begin[t], s_.begin[t + 1], s_.squares[threadIdx.x / 32],
                                    [&](std::uint32_t i) { return maybe_sent(s_, i); });
      if (threadIdx.x % 32 == 0) norms[t] = sum;
    }
  }

  // Whoever completes a group of 4096 tiles adds it up, and whoever completes the groups publishes the result.
  __device__ void add_norms() {
    if (candidates_.tiles() == 0) return;
    const std::size_t groups = (a_.tiles_count + kTile - 1) / kTile;
    if (groups <= kMostAdded) return add_few_norms();
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
      const double2 sums = add_two<1>(a_.tile_norms + g * kTile, a_.sent_norms + g * kTile, size, s_);
      if (threadIdx.x == 0) {
        a_.group_counts[g] = 0;
        __stcg(a_.group_norms + g, sums.x);
        __stcg(a_.sent_group_norms + g, sums.y);
        __threadfence();
        s_.is_last = atomicAdd(&a_.control->groups_done, 1) + 1 == groups ? 1 : 0;
        __threadfence();
      }
      __syncthreads();
      if (s_.is_last != 0) end(add_up_groups(groups));
    }
  }

  __device__ double2 add_up_groups(std::size_t groups) {
    if (groups > 32) return add_two<1>(a_.group_norms, a_.sent_group_norms, groups, s_);
    if (threadIdx.x >= 32) return {0, 0};
    return {add_few(a_.group_norms, groups), add_few(a_.sent_group_norms, groups)};
  }

  // The same with one counter: whoever comes last adds up all groups.
  __device__ void add_few_norms() {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      s_.is_last = atomicAdd(&a_.control->groups_done, candidates_.tiles()) + candidates_.tiles() == a_.tiles_count;
      __threadfence();
    }
    __syncthreads();
    if (s_.is_last == 0) return;
    end(add_two<kMostAdded>(a_.tile_norms, a_.sent_norms, a_.tiles_count, s_));
  }

  // By the last block; thread 0 has the sums.
  __device__ void end(const double2& sums) {
    if constexpr (kBy == By::all) {  // all others have ended, or have no candidates
      if (threadIdx.x < kArenas) a_.control->used[threadIdx.x].value = 0;
    }
    if (threadIdx.x >= 32) return;
    StepResult r;
    r.count = total_;
    r.accumulated_norm2 = sums.x;
    r.sent_norm2 = sums.y;
    r.kth = quota_ == kAllWin ? 0 : kth_;
    r.found = found_;
    publish(r);
    if (threadIdx.x != 0) return;
    a_.control->groups_done = 0;
    if constexpr (kBy != By::all) guess(*a_.control);
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
  std::uint32_t has_uncounted_ = 0;
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
