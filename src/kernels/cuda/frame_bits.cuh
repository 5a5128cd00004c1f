// Bit streams of a frame, written by many threads: each has some codes that follow each other.
#pragma once

#include "kernels/cuda/frame_entries.cuh"

namespace sparsewire::cuda {

// Writes bits from a position of the frame on. The frame is zero before, so that zeros need not be written; words at
// the ends are shared with others.
class FrameBits {
 public:
  __device__ FrameBits(std::uint32_t* frame, std::uint64_t position)
      : word_(frame + position / 32), used_(static_cast<unsigned>(position % 32)) {}

  // REQUIRES: count <= 32; no bits above them.
  __device__ __forceinline__ void put(std::uint32_t bits, unsigned count) {
    pending_ |= std::uint64_t{bits} << used_;
    used_ += count;
    if (used_ >= 32) next_word();
  }
  // So many zeros, and a one.
  __device__ __forceinline__ void put_unary(std::uint32_t zeros) {
    for (; zeros >= 32; zeros -= 32) put(0, 32);
    put(1U << zeros, zeros + 1);
  }
  __device__ __forceinline__ void finish() {
    if (pending_ != 0) atomicOr(word_, static_cast<std::uint32_t>(pending_));
  }

 private:
  __device__ __forceinline__ void next_word() {
    const auto bits = static_cast<std::uint32_t>(pending_);
    if (is_first_) {
      atomicOr(word_, bits);
    } else {
      *word_ = bits;
    }
    is_first_ = false;
    ++word_;
    pending_ >>= 32U;
    used_ -= 32;
  }

  std::uint32_t* word_;
  unsigned used_;
  std::uint64_t pending_ = 0;
  bool is_first_ = true;
};

inline constexpr unsigned kMostStreams = 4;
inline constexpr std::uint32_t kSegment = 4096;  // indices whose codes a block writes
inline constexpr unsigned kSegmentThreads = 128;
inline constexpr std::uint32_t kCodesOfThread = kSegment / kSegmentThreads;

// Where the streams of the indices are, in bits of the frame.
struct FrameLayout {
  std::uint64_t begin[kMostStreams] = {};
  std::uint64_t bytes = 0;  // of the frame, with the checksum
  std::uint32_t has_failed = 0;
  std::uint32_t checksum = 0;
  std::uint32_t blocks_done = 0;
};

// Adds up a number over the threads of a block, before each. REQUIRES: all threads call it; `warps` is shared, and not
// in use.
template <unsigned kThreads>
__device__ inline std::uint64_t add_before(std::uint64_t number, std::uint64_t (&warps)[kThreads / 32],
                                           std::uint64_t& total) {
  const unsigned lane = threadIdx.x % 32;
  std::uint64_t through = number;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint64_t left = __shfl_up_sync(kAllLanes, through, step);
    if (lane >= step) through += left;
  }
  if (lane == 31) warps[threadIdx.x / 32] = through;
  __syncthreads();
  std::uint64_t before = through - number;
  total = 0;
#pragma unroll
  for (unsigned w = 0; w < kThreads / 32; ++w) {
    before += w < threadIdx.x / 32 ? warps[w] : 0;
    total += warps[w];
  }
  __syncthreads();
  return before;
}

inline constexpr unsigned kLayoutThreads = 1024;

// What a section of indices begins with: some fixed bytes, then the lengths of all streams but the last ones.
struct SectionHead {
  std::uint64_t begin;  // of the section in the frame, in bytes
  std::uint32_t fixed;  // the first bytes
  unsigned fixed_bytes;
  unsigned streams;
  unsigned lengths;  // of streams that are written
};

__device__ inline void put_bytes(std::uint32_t* frame, std::uint64_t at, std::uint32_t number, unsigned bytes) {
  FrameBits bits(frame, at * 8);
  bits.put(number, bytes * 8);
  bits.finish();
}

// lengths: in bits, of each segment for each stream; becomes where they begin in the stream. Writes the head of the
// section. One block.
static __global__ void __launch_bounds__(kLayoutThreads)
    lay_out(const __grid_constant__ SectionHead head, std::uint32_t segments, std::uint64_t* lengths,
            std::uint32_t* frame, std::uint64_t room, FrameLayout* layout) {
  __shared__ std::uint64_t warps[kLayoutThreads / 32];
  std::uint64_t begin = head.begin + head.fixed_bytes + 4 * head.lengths;  // of the stream, in bytes
  for (unsigned stream = 0; stream < head.streams; ++stream) {
    std::uint64_t bits = 0;  // so far
    for (std::uint32_t first = 0; first < segments; first += kLayoutThreads) {
      const std::uint32_t segment = first + threadIdx.x;
      std::uint64_t* const mine = lengths + std::size_t{segment} * kMostStreams + stream;
      std::uint64_t total = 0;
      const std::uint64_t before = add_before<kLayoutThreads>(segment < segments ? *mine : 0, warps, total);
      if (segment < segments) *mine = bits + before;
      bits += total;
    }
    const std::uint64_t bytes = (bits + 7) / 8;
    if (threadIdx.x == 0) {
      layout->begin[stream] = begin * 8;
      if (bytes > 0xFFFFFFFF) layout->has_failed = 1;
      const std::uint64_t at = head.begin + head.fixed_bytes + 4 * stream;
      if (stream < head.lengths) put_bytes(frame, at, static_cast<std::uint32_t>(bytes), 4);
    }
    begin += bytes;
  }
  if (threadIdx.x != 0) return;
  put_bytes(frame, head.begin, head.fixed, head.fixed_bytes);
  layout->bytes = begin + 4;
  if (layout->bytes > room) layout->has_failed = 1;
}

}  // namespace sparsewire::cuda
