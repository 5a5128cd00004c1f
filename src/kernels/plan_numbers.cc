// Chooses the parameters of numbers in blocks (numbers.h). A block's candidates are about the mean of log2(number + 1),
// the two next to that, and the parameters of blocks before it. Compiled for each SIMD level (see golomb.cc).
#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/numbers.h"
#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/plan_numbers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/number_classes.h"  // must come after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE std::uint32_t sum_of(D d, V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

// A number for each block of a group.
struct alignas(16) OfBlocks {
  std::uint32_t of[kNumberGroup];
};

#if HWY_TARGET != HWY_SCALAR
// Combines the lanes of a vector until four are left.
template <class DV, class Operation>
HWY_INLINE auto fold_to_four(DV d, hn::Vec<DV> v, const Operation& operation) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<DV> half;
    return fold_to_four(half, operation(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), operation);
  }
}
#endif

// Reduces each of four vectors to one number, by an operation that is commutative and associative.
template <class Operation>
HWY_INLINE OfBlocks reduce_four([[maybe_unused]] D d, const V (&v)[kNumberGroup],
                                [[maybe_unused]] const Operation& operation) {
  OfBlocks result;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kNumberGroup; ++i) result.of[i] = hn::GetLane(v[i]);
#else
  const hn::CappedTag<std::uint32_t, 4> d4;
  const hn::Repartition<std::uint64_t, decltype(d4)> d2;
  hn::Vec<decltype(d4)> four[kNumberGroup];
  for (std::size_t i = 0; i < kNumberGroup; ++i) four[i] = fold_to_four(d, v[i], operation);
  const auto first = operation(hn::InterleaveLower(d4, four[0], four[1]), hn::InterleaveUpper(d4, four[0], four[1]));
  const auto second = operation(hn::InterleaveLower(d4, four[2], four[3]), hn::InterleaveUpper(d4, four[2], four[3]));
  const auto low = hn::InterleaveLower(d2, hn::BitCast(d2, first), hn::BitCast(d2, second));
  const auto high = hn::InterleaveUpper(d2, hn::BitCast(d2, first), hn::BitCast(d2, second));
  hn::Store(operation(hn::BitCast(d4, low), hn::BitCast(d4, high)), d4, result.of);
#endif
  return result;
}

struct Sum {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return hn::Add(a, b);
  }
};
struct Largest {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return hn::Max(a, b);
  }
};

// Sums over a block: of the parts of the classes up to `linear`, and of those above, which are also what rests have
// more than `parameter` bits.
struct Sums {
  std::uint32_t bases;
  std::uint32_t longer;
};

// Both sums in one number, in each lane a part. REQUIRES: quotients below kExact.
HWY_INLINE V small_sums(const std::uint32_t* block, std::uint32_t parameter, std::uint32_t linear) {
  static_assert(kMostLinear * kNumberBlock < 1 << 16);
  const D d;
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const Quotients q = divide(d, block + i, parameter, linear);
    sum = hn::Add(sum, hn::Add(q.base, hn::ShiftLeft<16>(exponent(d, q.above))));
  }
  return sum;
}
HWY_INLINE Sums split_sums(std::uint32_t both) {
  return {both & 0xFFFF, (both >> 16) - 127 * static_cast<std::uint32_t>(kNumberBlock)};
}

// With any quotients.
HWY_NOINLINE Sums large_sums(const std::uint32_t* block, std::uint32_t parameter, std::uint32_t linear) {
  Sums sums{0, 0};
  for (std::size_t i = 0; i < kNumberBlock; ++i) {
    const Place place = place_of(block[i], parameter, linear);
    sums.bases += place.rank - place.longer;
    sums.longer += place.longer;
  }
  return sums;
}

// REQUIRES: `largest` is the largest number of the block.
HWY_INLINE Sums sums_of(const std::uint32_t* block, std::uint32_t largest, std::uint32_t parameter,
                        std::uint32_t linear) {
  return largest >> parameter < kExact ? split_sums(sum_of(D(), small_sums(block, parameter, linear)))
                                       : large_sums(block, parameter, linear);
}

// The sums of the quotients with three parameters from `lowest` on, in one number, where no class is above `linear`. In
// each lane a part.
constexpr int kFirst = 11;
constexpr int kSecond = 10;
HWY_INLINE V linear_sums(const std::uint32_t* block, std::uint32_t lowest) {
  static_assert(kMostLinear * kNumberBlock < 1 << kFirst && kMostLinear / 2 * kNumberBlock < 1 << kSecond &&
                kMostLinear / 4 * kNumberBlock < 1 << (32 - kFirst - kSecond));
  const D d;
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const V quotient = hn::ShiftRightSame(hn::LoadU(d, block + i), static_cast<int>(lowest));
    const V half = hn::ShiftLeft<kFirst>(hn::ShiftRight<1>(quotient));
    const V quarter = hn::ShiftLeft<kFirst + kSecond>(hn::ShiftRight<2>(quotient));
    sum = hn::Add(hn::Add(sum, quotient), hn::Add(half, quarter));
  }
  return sum;
}

// The bits that a parameter takes after another one.
HWY_INLINE std::uint32_t bits_of_change(std::uint32_t from, std::uint32_t to) {
  const auto change = static_cast<std::uint32_t>(std::abs(static_cast<int>(to) - static_cast<int>(from)));
  return 1 + change + std::min(change, 1U);
}

// Three parameters, one after the other.
constexpr std::size_t kNear = 3;

// The same for all changes from -kMostParameter on, and for those to parameters that are too large.
struct BitsOfChange {
  std::array<std::uint8_t, 2 * kMostParameter + kNear> of;

  constexpr BitsOfChange() : of() {
    for (int i = 0; i < static_cast<int>(of.size()); ++i) {
      const int change = i < kMostParameter ? kMostParameter - i : i - kMostParameter;
      of[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(1 + change + std::min(change, 1));
    }
  }
};
constexpr BitsOfChange kBitsOfChange;

// The order of three parameters: that in the middle, the lowest, the highest; and those that there are not, which are
// never chosen. By whether there is a lower one than that in the middle, plus 2 if there is a higher one.
constexpr std::uint32_t kNever = 1U << 30;
constexpr std::uint32_t kOrders[4][kNear] = {{0, kNever, kNever}, {1, 0, kNever}, {0, 2, kNever}, {1, 0, 2}};

// For a guess of the parameter: the logarithms of the numbers plus 1, which floats have in their bits, nearly. In each
// lane a part of their sum, in units of 2^-15, so that it fits. One of the lanes of `most` becomes the largest number.
HWY_INLINE V sum_logarithms(const std::uint32_t* block, V& most) {
  const D d;
  const hn::RebindToFloat<D> df;
  const hn::RebindToSigned<D> di;
  V sum = hn::Zero(d);
  most = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const V number = hn::LoadU(d, block + i);
    most = hn::Max(most, number);
    const V plus_one = hn::Add(hn::Min(number, hn::Set(d, 0x7FFFFFFE)), hn::Set(d, 1));
    const V bits = hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, plus_one)));
    sum = hn::Add(sum, hn::ShiftRight<8>(hn::Sub(bits, hn::Set(d, 127U << 23))));
  }
  return sum;
}

// A parameter for a block.
struct Choice {
  std::uint32_t parameter;
  Sums sums;

  std::uint32_t bits(std::uint32_t count) const { return sums.bases + 2 * sums.longer + count * (parameter + 1); }
};

// A group of blocks, and the parameters that it may take.
struct Group {
  const std::uint32_t* blocks[kNumberGroup];
  OfBlocks counts;        // of numbers in each block; 0: there is no such block, but 32 zeros
  std::size_t size = 0;   // in blocks
  OfBlocks largest;       // number of each block
  OfBlocks middle;        // the parameter that is about right
  OfBlocks lowest;        // of three that are near it
  OfBlocks bases[kNear];  // the sums with these
  OfBlocks longer[kNear];
  OfBlocks bits[kNear];            // four times what a block takes with them, plus their order
  Choice changed[kNumberGroup];    // the best for each block
  Choice steady[kNumberGroup];     // as in the block before the group
  std::uint32_t changed_bits = 0;  // what the group takes with these
  std::uint32_t steady_bits = 0;

  Choice near(std::size_t i, std::uint32_t j) const { return {lowest.of[i] + j, {bases[j].of[i], longer[j].of[i]}}; }
};

// The parameters that are about right: the means of log2(number + 1).
HWY_INLINE void guess(std::uint32_t least, Group& group) {
  V sums[kNumberGroup];
  V most[kNumberGroup];
  for (std::size_t i = 0; i < kNumberGroup; ++i) sums[i] = sum_logarithms(group.blocks[i], most[i]);
  const OfBlocks all = reduce_four(D(), sums, Sum());
  group.largest = reduce_four(D(), most, Largest());
  constexpr std::uint32_t kShift = (3U << 15) / 10;  // by trial
  for (std::size_t i = 0; i < kNumberGroup; ++i) {
    group.middle.of[i] = (all.of[i] / std::uint32_t{kNumberBlock} + kShift) >> 15;
  }
  const std::size_t last = group.size - 1;
  if (group.counts.of[last] < kNumberBlock) {
    group.middle.of[last] = (all.of[last] / group.counts.of[last] + kShift) >> 15;
  }
  for (std::size_t i = 0; i < kNumberGroup; ++i) {
    const std::uint32_t middle = std::clamp<std::uint32_t>(group.middle.of[i], least, kMostParameter);
    group.middle.of[i] = middle;
    group.lowest.of[i] = middle - (middle > least ? 1 : 0);
  }
}

// The sums of all blocks with the three parameters.
HWY_INLINE void sum_near(std::uint32_t linear, Group& group) {
  const D d;
  std::uint32_t most = 0;  // quotient
  for (std::size_t i = 0; i < kNumberGroup; ++i) most = std::max(most, group.largest.of[i] >> group.lowest.of[i]);
  V sums[kNumberGroup];
  if (most <= linear) {
    for (std::size_t i = 0; i < kNumberGroup; ++i) sums[i] = linear_sums(group.blocks[i], group.lowest.of[i]);
    const OfBlocks all = reduce_four(d, sums, Sum());
    for (std::size_t i = 0; i < kNumberGroup; ++i) {
      group.bases[0].of[i] = all.of[i] & ((1U << kFirst) - 1);
      group.bases[1].of[i] = all.of[i] >> kFirst & ((1U << kSecond) - 1);
      group.bases[2].of[i] = all.of[i] >> (kFirst + kSecond);
      for (OfBlocks& longer : group.longer) longer.of[i] = 0;
    }
    return;
  }
  for (std::uint32_t j = 0; j < kNear; ++j) {
    const auto parameter = [&](std::size_t i) {
      return std::min<std::uint32_t>(group.lowest.of[i] + j, kMostParameter);
    };
    if (most < kExact) {
      for (std::size_t i = 0; i < kNumberGroup; ++i) sums[i] = small_sums(group.blocks[i], parameter(i), linear);
      const OfBlocks all = reduce_four(d, sums, Sum());
      for (std::size_t i = 0; i < kNumberGroup; ++i) {
        const Sums both = split_sums(all.of[i]);
        group.bases[j].of[i] = both.bases;
        group.longer[j].of[i] = both.longer;
      }
    } else {
      for (std::size_t i = 0; i < kNumberGroup; ++i) {
        const Sums both = sums_of(group.blocks[i], group.largest.of[i], parameter(i), linear);
        group.bases[j].of[i] = both.bases;
        group.longer[j].of[i] = both.longer;
      }
    }
  }
}

// What the blocks take with the three parameters, without the change of the parameter.
HWY_INLINE void count_bits(std::uint32_t least, Group& group) {
  for (std::uint32_t j = 0; j < kNear; ++j) {
    for (std::size_t i = 0; i < kNumberGroup; ++i) {
      const std::uint32_t order =
          kOrders[(group.middle.of[i] > least ? 1 : 0) + (group.middle.of[i] < kMostParameter ? 2 : 0)][j];
      group.bits[j].of[i] = (group.near(i, j).bits(group.counts.of[i]) << 2) + order;
    }
  }
}

// Finds the best parameter of a block after one with the parameter `before`; `steady` is that of the block before the
// group.
HWY_INLINE void choose(const NumberCode& code, std::size_t i, std::uint32_t before, std::uint32_t steady,
                       Group& group) {
  const auto linear = static_cast<std::uint32_t>(code.linear);
  const auto least = static_cast<std::uint32_t>(code.least_parameter);
  const std::uint32_t count = group.counts.of[i];
  const std::uint32_t middle = group.middle.of[i];
  const std::uint32_t lowest = group.lowest.of[i];
  const std::uint32_t highest = middle + (middle < kMostParameter ? 1 : 0);
  // The shortest of the three; of equally short ones that in the middle, then the lowest. Without branches, which would
  // be mispredicted half the time: the last two bits are the order.
  const std::uint8_t* const change = kBitsOfChange.of.data() + kMostParameter + lowest - before;
  std::uint32_t best = ~0U;
  for (std::uint32_t j = 0; j < kNear; ++j) {
    best = std::min(best, group.bits[j].of[i] + (std::uint32_t{change[j]} << 2));
  }
  const std::uint32_t chosen = middle + (best >> 1 & 1) - (best & 1);
  group.changed[i] = group.near(i, chosen - lowest);
  std::uint32_t best_bits = best >> 2;  // with the change of the parameter
  if (steady - lowest < kNear) group.steady[i] = group.near(i, steady - lowest);
  const auto consider = [&](std::uint32_t parameter) HWY_ATTR {
    const Choice choice{parameter, sums_of(group.blocks[i], group.largest.of[i], parameter, linear)};
    if (parameter == steady) group.steady[i] = choice;
    const std::uint32_t bits = choice.bits(count) + bits_of_change(before, parameter);
    if (bits >= best_bits) return;
    group.changed[i] = choice;
    best_bits = bits;
  };
  const auto is_far = [&](std::uint32_t parameter) { return parameter < lowest || parameter > highest; };
  if (before >= least && is_far(before)) consider(before);
  if (steady >= least && steady != before && is_far(steady)) consider(steady);
  group.changed_bits += best_bits;
  if (steady >= least) group.steady_bits += group.steady[i].bits(count);
}

HWY_INLINE void plan_group(const NumberCode& code, Group& group, std::uint8_t* parameters, NumberPlan& plan) {
  const auto steady = static_cast<std::uint32_t>(plan.parameter);
  const auto least = static_cast<std::uint32_t>(code.least_parameter);
  guess(least, group);
  sum_near(static_cast<std::uint32_t>(code.linear), group);
  count_bits(least, group);
  group.changed_bits = 0;
  group.steady_bits = 0;
  std::uint32_t before = steady;
  for (std::size_t i = 0; i < group.size; ++i) {
    choose(code, i, before, steady, group);
    before = group.changed[i].parameter;
  }
  const bool is_steady = plan.parameter >= code.least_parameter && group.steady_bits <= group.changed_bits;
  ++plan.parameter_bits;
  for (std::size_t i = 0; i < group.size; ++i) {
    const Choice& choice = is_steady ? group.steady[i] : group.changed[i];
    const std::uint32_t count = group.counts.of[i];
    if (!is_steady) plan.parameter_bits += bits_of_change(static_cast<std::uint32_t>(plan.parameter), choice.parameter);
    plan.class_bits += count + choice.sums.bases + choice.sums.longer;
    plan.rest_bits += count * choice.parameter + choice.sums.longer;
    plan.parameter = static_cast<int>(choice.parameter);
    parameters[i] = static_cast<std::uint8_t>(choice.parameter);
  }
}

void plan_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, std::uint8_t* parameters,
                  NumberPlan& plan) {
  Group group;
  static constexpr Block kZeros{};
  Block last;  // where it is not a whole one: filled up with zeros
  for (std::size_t begin = 0; begin < numbers.size();) {
    group.size = 0;
    for (std::size_t i = 0; i < kNumberGroup; ++i) {
      const std::uint32_t* const block = numbers.data() + begin;
      const std::size_t count = std::min(kNumberBlock, numbers.size() - begin);
      if (count > 0 && count < kNumberBlock) {
        std::fill(std::copy_n(block, count, last.numbers), last.numbers + kNumberBlock, 0U);
      }
      group.blocks[i] = count == kNumberBlock ? block : count > 0 ? last.numbers : kZeros.numbers;
      group.counts.of[i] = static_cast<std::uint32_t>(count);
      group.size += count > 0 ? 1 : 0;
      begin += count;
    }
    plan_group(code, group, parameters, plan);
    parameters += group.size;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(plan_numbers);
}  // namespace

void plan_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, std::uint8_t* parameters,
                  NumberPlan& plan) noexcept {
  HWY_DYNAMIC_DISPATCH(plan_numbers)(code, numbers, parameters, plan);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
