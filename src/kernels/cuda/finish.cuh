// A step after its pass, as a block sees it: finds the k-th key, adds up the norms, writes the winners in ascending order
// of their indices, and puts the others back. One kernel, in which all blocks tell each other once what they have near
// the k-th key: that costs less than a launch. Where that does not suffice, they meet at barriers.
//
// The kernel is in finish_kernel.cuh, and what it does in a file for each part.
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

  __device__ void run();

 private:
  // Of a candidate: one of those that are equal to the k-th wins if it is one of the first.
  enum class Verdict { loses, ties, wins };

  __device__ Verdict verdict_of(std::uint32_t i) const {
    if (quota_ == kAllWin) return Verdict::wins;
    const std::uint32_t rank = candidates_.rank(i);
    return rank > kth_ ? Verdict::wins : rank == kth_ ? Verdict::ties : Verdict::loses;
  }

  // finish_choose.cuh
  __device__ void run_all(std::uint32_t used, std::uint32_t outcome);
  __device__ std::uint32_t count_all();
  __device__ __forceinline__ NearKth find_bin_of_kth(const FineBins& fine, std::uint32_t sum, std::uint32_t threshold);
  __device__ Kth find_kth(const NearKth& near, std::uint32_t threshold, bool& is_counted);
  __device__ bool count_scores(std::uint32_t threshold);

  // finish_draw.cuh
  __device__ std::uint32_t drawn_key(std::uint32_t i) const { return ~a_.draw.block(s_.index[i])[0]; }
  __device__ bool draw_fast();
  __device__ void draw();

  // finish_write.cuh
  template <class Begin, class Of>
  __device__ __forceinline__ void count_winners(Begin begin, Of verdict);
  __device__ void clear();
  template <class Begin, class Of>
  __device__ __forceinline__ void write(Begin begin, Of verdict, std::uint32_t quota);
  template <class Of>
  __device__ __forceinline__ void decide(const Part& part, Of verdict, std::uint32_t quota);

  // finish_result.cuh
  __device__ void fail(std::uint32_t outcome);
  __device__ void publish(const StepResult& r);
  __device__ bool has_few_groups() const { return a_.tiles_count <= kMostSlices * kSlice; }
  __device__ void add_accumulated();
  __device__ void announce_norms();
  __device__ void add_norms();
  __device__ double add_up_groups(std::size_t groups);
  __device__ double add_few_groups();
  __device__ void end(double norm2);
  __device__ void guess(Control& control) const;

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
  bool has_accumulated_ = false;
  int rounds_ = 0;  // of the search for the k-th
};

}  // namespace sparsewire::cuda
