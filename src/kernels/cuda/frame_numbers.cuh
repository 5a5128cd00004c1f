// Gaps as numbers in blocks, on the device: the same bits as kernels/plan_numbers.cc and write_numbers.cc.
// docs/reference/wire_format.md defines the code.
//
// The parameter of a block depends on that of the block before it. So a warp plans a segment from a parameter that it
// finds by planning the group before it; where that was wrong, the segment is planned again.
#pragma once

#include "kernels/cuda/frame_bits.cuh"
#include "kernels/numbers.h"

namespace sparsewire::cuda {

inline constexpr std::uint32_t kBlock = kernels::kNumberBlock;
inline constexpr std::uint32_t kBlocksOfGroup = kernels::kNumberGroup;
inline constexpr std::uint32_t kMostParameter = kernels::kMostParameter;
inline constexpr std::uint32_t kGroup = kBlocksOfGroup * kBlock;
static_assert(kCodesOfThread == kBlock && kSegment % kGroup == 0);

// The parameters before a segment and at its end.
struct SegmentEnds {
  std::uint32_t before = 0;
  std::uint32_t last = 0;
};

struct NumbersArguments {
  const std::uint32_t* indices;
  std::uint32_t count;
  std::uint32_t linear;
  std::uint32_t guess;  // a parameter
  std::uint8_t* parameters;
  SegmentEnds* ends;       // of segments
  std::uint64_t* lengths;  // of parameters, classes and rests of each segment, in bits
  std::uint32_t* frame;
  FrameLayout* layout;
};
inline constexpr unsigned kPlanThreads = 128;  // a warp for each segment

// The place of a number in the code, as place_of() of kernels/number_classes.h.
struct NumberPlace {
  std::uint32_t base;
  std::uint32_t longer;
};
__device__ __forceinline__ NumberPlace place_of(std::uint32_t number, std::uint32_t parameter, std::uint32_t linear) {
  const std::uint32_t quotient = number >> parameter;
  const std::uint32_t base = min(quotient, linear);
  return {base, 31U - static_cast<std::uint32_t>(__clz(static_cast<int>(quotient - base + 1)))};
}

__device__ __forceinline__ std::uint32_t bits_of_change(std::uint32_t from, std::uint32_t to) {
  return from == to ? 1 : 2 + (from < to ? to - from : from - to);
}

// What a block takes with some parameter.
struct BlockChoice {
  std::uint32_t parameter = 0;
  std::uint32_t bases = 0;
  std::uint32_t longer = 0;

  __device__ std::uint32_t bits(std::uint32_t count) const { return bases + 2 * longer + count * (parameter + 1); }
};

// A group of blocks, planned by a warp: lane l has number l of each block.
class NumberGroup {
 public:
  // From number `begin` on.
  __device__ NumberGroup(const NumbersArguments& a, std::uint32_t begin) : linear_(a.linear) {
    blocks_ = min(kBlocksOfGroup, (a.count - begin + kBlock - 1) / kBlock);
#pragma unroll
    for (unsigned i = 0; i < kBlocksOfGroup; ++i) {
      const std::uint32_t at = begin + i * kBlock + threadIdx.x % 32;
      numbers_[i] = at < a.count ? gap_before(a.indices, at) : 0;
      counts_[i] = min(kBlock, a.count - min(a.count, begin + i * kBlock));
    }
  }

  // Chooses the parameters after `before`; returns the last.
  __device__ std::uint32_t plan(std::uint32_t before) {
    const std::uint32_t steady = before;
    std::uint32_t changed_bits = 0;
    std::uint32_t steady_bits = 0;
    BlockChoice changed[kBlocksOfGroup];
    BlockChoice same[kBlocksOfGroup];
#pragma unroll
    for (unsigned i = 0; i < kBlocksOfGroup; ++i) {
      if (i >= blocks_) break;
      plan_block(i, before, steady, changed[i], same[i]);
      changed_bits += changed[i].bits(counts_[i]) + bits_of_change(before, changed[i].parameter);
      steady_bits += same[i].bits(counts_[i]);
      before = changed[i].parameter;
    }
    const bool is_steady = steady_bits <= changed_bits;
    before = steady;
    parameter_bits = 1;
    class_bits = rest_bits = 0;
#pragma unroll
    for (unsigned i = 0; i < kBlocksOfGroup; ++i) {
      if (i >= blocks_) break;
      const BlockChoice& choice = is_steady ? same[i] : changed[i];
      if (!is_steady) parameter_bits += bits_of_change(before, choice.parameter);
      class_bits += counts_[i] + choice.bases + choice.longer;
      rest_bits += counts_[i] * choice.parameter + choice.longer;
      before = parameters[i] = choice.parameter;
    }
    return before;
  }

  __device__ std::uint32_t blocks() const { return blocks_; }

  // After plan().
  std::uint32_t parameters[kBlocksOfGroup];
  std::uint32_t parameter_bits = 0;
  std::uint32_t class_bits = 0;
  std::uint32_t rest_bits = 0;

 private:
  __device__ __forceinline__ BlockChoice choice_of(unsigned i, std::uint32_t parameter) const {
    const NumberPlace place = place_of(numbers_[i], parameter, linear_);
    const std::uint32_t both = __reduce_add_sync(kAllLanes, place.base | place.longer << 16U);
    return {parameter, both & 0xFFFFU, both >> 16U};
  }

  // The parameter that is about right, as guess() of kernels/plan_numbers.cc.
  __device__ __forceinline__ std::uint32_t middle_of(unsigned i) const {
    const auto plus_one = static_cast<float>(static_cast<std::int32_t>(min(numbers_[i], 0x7FFFFFFEU) + 1));
    const std::uint32_t sum = __reduce_add_sync(kAllLanes, (__float_as_uint(plus_one) - (127U << 23U)) >> 8U);
    constexpr std::uint32_t kShift = (3U << 15U) / 10;
    return min((sum / counts_[i] + kShift) >> 15U, kMostParameter);
  }

  __device__ __forceinline__ void plan_block(unsigned i, std::uint32_t before, std::uint32_t steady, BlockChoice& best,
                                             BlockChoice& same) const {
    const std::uint32_t middle = middle_of(i);
    std::uint32_t best_bits = ~0U;
    const auto consider = [&](std::uint32_t parameter) {
      const BlockChoice choice = choice_of(i, parameter);
      if (parameter == steady) same = choice;
      const std::uint32_t bits = choice.bits(counts_[i]) + bits_of_change(before, parameter);
      if (bits >= best_bits) return;
      best = choice;
      best_bits = bits;
    };
    const auto is_far = [&](std::uint32_t parameter) { return parameter + 1 < middle || parameter > middle + 1; };
    consider(middle);
    if (middle > 0) consider(middle - 1);
    if (middle < kMostParameter) consider(middle + 1);
    if (is_far(before)) consider(before);
    if (steady != before && is_far(steady)) consider(steady);
  }

  std::uint32_t linear_;
  std::uint32_t blocks_;
  std::uint32_t numbers_[kBlocksOfGroup];
  std::uint32_t counts_[kBlocksOfGroup];
};

// Plans a segment whose first block follows one with the parameter `before`.
__device__ inline void plan_segment(const NumbersArguments& a, std::uint32_t segment, std::uint32_t before) {
  const bool is_first_lane = threadIdx.x % 32 == 0;
  const std::uint32_t end = min(a.count, (segment + 1) * kSegment);
  if (is_first_lane) a.ends[segment].before = before;
  std::uint64_t parameter_bits = 0;
  std::uint64_t class_bits = 0;
  std::uint64_t rest_bits = 0;
  for (std::uint32_t begin = segment * kSegment; begin < end; begin += kGroup) {
    NumberGroup group(a, begin);
    before = group.plan(before);
    parameter_bits += group.parameter_bits;
    class_bits += group.class_bits;
    rest_bits += group.rest_bits;
#pragma unroll
    for (unsigned i = 0; i < kBlocksOfGroup; ++i) {
      if (is_first_lane && i < group.blocks()) {
        a.parameters[begin / kBlock + i] = static_cast<std::uint8_t>(group.parameters[i]);
      }
    }
  }
  if (!is_first_lane) return;
  std::uint64_t* const lengths = a.lengths + std::size_t{segment} * kMostStreams;
  lengths[0] = parameter_bits;
  lengths[1] = class_bits;
  lengths[2] = rest_bits;
  a.ends[segment].last = before;
}

static __global__ void __launch_bounds__(kPlanThreads) plan_numbers(const __grid_constant__ NumbersArguments a) {
  const std::uint32_t segment = (blockIdx.x * kPlanThreads + threadIdx.x) / 32;
  if (segment * kSegment >= a.count) return;
  std::uint32_t before = 0;
  if (segment > 0) before = NumberGroup(a, segment * kSegment - kGroup).plan(a.guess);
  plan_segment(a, segment, before);
}

// Plans those segments again that did not begin with the parameter that is before them.
static __global__ void __launch_bounds__(kPlanThreads) plan_numbers_again(const __grid_constant__ NumbersArguments a) {
  const std::uint32_t segment = (blockIdx.x * kPlanThreads + threadIdx.x) / 32;
  if (segment == 0 || segment * kSegment >= a.count) return;
  const volatile SegmentEnds* const ends = a.ends;
  const std::uint32_t before = __shfl_sync(kAllLanes, ends[segment - 1].last, 0);
  if (ends[segment].before == before) return;
  __syncwarp();  // all lanes have read it
  plan_segment(a, segment, before);
}

// Writes the codes of a segment. A thread has a block of numbers; one of four also the parameters of a group.
static __global__ void __launch_bounds__(kSegmentThreads) write_numbers(const __grid_constant__ NumbersArguments a) {
  __shared__ std::uint64_t warps[kSegmentThreads / 32];
  const std::uint32_t segment = blockIdx.x;
  const bool is_wrong = threadIdx.x == 0 && segment > 0 && a.ends[segment].before != a.ends[segment - 1].last;
  if (is_wrong) a.layout->has_failed = 1;
  if (__syncthreads_or(is_wrong || (threadIdx.x == 0 && a.layout->has_failed != 0)) != 0) return;
  const std::uint32_t begin = min(a.count, segment * kSegment + threadIdx.x * kCodesOfThread);
  const std::uint32_t end = min(a.count, begin + kCodesOfThread);
  const std::uint32_t block = begin / kBlock;
  const std::uint32_t parameter = begin < end ? a.parameters[block] : 0;

  // How long this thread's codes are: of parameters, classes and rests.
  std::uint64_t classes = 0;
  std::uint64_t rests = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    const NumberPlace place = place_of(gap_before(a.indices, i), parameter, a.linear);
    classes += place.base + place.longer + 1;
    rests += parameter + place.longer;
  }
  const bool has_group = begin < end && threadIdx.x % kBlocksOfGroup == 0;
  const std::uint32_t blocks = (a.count + kBlock - 1) / kBlock;
  const std::uint32_t group_end = min(blocks, block + kBlocksOfGroup);
  const std::uint32_t before = block == 0 || begin >= end ? 0 : a.parameters[block - 1];
  bool is_steady = true;
  std::uint64_t parameters = 0;
  if (has_group) {
    std::uint32_t last = before;
    for (std::uint32_t b = block; b < group_end; ++b) {
      is_steady = is_steady && a.parameters[b] == before;
      parameters += bits_of_change(last, a.parameters[b]);
      last = a.parameters[b];
    }
    parameters = is_steady ? 1 : parameters + 1;
  }
  std::uint64_t total = 0;
  const std::uint64_t at = add_before<kSegmentThreads>(parameters | classes << 21U | rests << 42U, warps, total);
  constexpr std::uint64_t kMask = (1U << 21U) - 1;
  if (begin >= end) return;

  const std::uint64_t* const starts = a.lengths + std::size_t{segment} * kMostStreams;
  FrameBits class_bits(a.frame, a.layout->begin[1] + starts[1] + (at >> 21U & kMask));
  FrameBits rest_bits(a.frame, a.layout->begin[2] + starts[2] + (at >> 42U & kMask));
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint32_t number = gap_before(a.indices, i);
    const NumberPlace place = place_of(number, parameter, a.linear);
    class_bits.put_unary(place.base + place.longer);
    // The smallest number of the class, divided by 2^parameter; it is no larger than the number.
    const auto first = static_cast<std::uint32_t>(place.base + (std::uint64_t{1} << place.longer) - 1);
    rest_bits.put(number - (first << parameter), parameter + place.longer);
  }
  class_bits.finish();
  rest_bits.finish();
  if (!has_group) return;
  FrameBits parameter_bits(a.frame, a.layout->begin[0] + starts[0] + (at & kMask));
  parameter_bits.put(is_steady ? 0 : 1, 1);
  std::uint32_t last = before;
  for (std::uint32_t b = block; !is_steady && b < group_end; ++b) {
    const std::uint32_t next = a.parameters[b];
    if (next == last) {
      parameter_bits.put(0, 1);
    } else {
      parameter_bits.put(next < last ? 3 : 1, 2);
      parameter_bits.put_unary((next < last ? last - next : next - last) - 1);
    }
    last = next;
  }
  parameter_bits.finish();
}

}  // namespace sparsewire::cuda
