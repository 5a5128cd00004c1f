// Scalar code and plain loops that vectorise, compiled for each SIMD level (see golomb.cc).
#include "kernels/numbers.h"

#include <algorithm>
#include <array>

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/numbers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<std::uint32_t, kNumberBlock>;
using V = hn::Vec<D>;

// Aligned for vectors.
struct alignas(64) Block {
  std::uint32_t numbers[kNumberBlock];
};

// The place of a number in the code with parameter `parameter`.
struct Place {
  std::uint32_t rank;    // of its class
  std::uint32_t longer;  // how many bits more than the parameter the rest has
  std::uint32_t first;   // the smallest number of the class, divided by 2^parameter
};

HWY_INLINE Place place_of(std::uint32_t number, std::uint32_t parameter, std::uint32_t linear) {
  const std::uint32_t quotient = number >> parameter;
  const std::uint32_t base = std::min(quotient, linear);
  const std::uint64_t above = std::uint64_t{quotient} - base + 1;
  const auto longer = static_cast<std::uint32_t>(std::bit_width(above) - 1);
  return {base + longer, longer, static_cast<std::uint32_t>(base + (std::uint64_t{1} << longer) - 1)};
}

constexpr std::uint32_t kExact = 1U << 24;  // below, a float holds the integer exactly

// 127 + floor(log2 x) for x in [1, 2^24].
HWY_INLINE V exponent(D d, V x) {
  const hn::RebindToFloat<D> df;
  const hn::RebindToSigned<D> di;
  return hn::ShiftRight<23>(hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, x))));
}

// Numbers divided by 2^parameter, as a class would have them if all had the same size, and what is above `linear`.
struct Quotients {
  V base;   // at most linear
  V above;  // 1 for a number at or below linear
};

HWY_INLINE Quotients divide(D d, const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear) {
  const V quotient = hn::ShiftRightSame(hn::LoadU(d, numbers), static_cast<int>(parameter));
  const V base = hn::Min(quotient, hn::Set(d, linear));
  return {base, hn::Add(hn::Sub(quotient, base), hn::Set(d, 1))};
}

HWY_INLINE std::uint32_t sum_of(D d, V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }
HWY_INLINE std::uint32_t largest_of(D d, V v) { return hn::GetLane(hn::MaxOfLanes(d, v)); }

// Sums over a block: of the parts of the classes up to `linear`, and of those above, which are also what rests have
// more than `parameter` bits.
struct Sums {
  std::uint32_t bases;
  std::uint32_t longer;
};

// With quotients below kExact.
HWY_INLINE Sums small_sums(const std::uint32_t* block, std::uint32_t parameter, std::uint32_t linear) {
  static_assert(kMostLinear * kNumberBlock < 1 << 16);  // both sums in one
  const D d;
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const Quotients q = divide(d, block + i, parameter, linear);
    sum = hn::Add(sum, hn::Add(q.base, hn::ShiftLeft<16>(exponent(d, q.above))));
  }
  const std::uint32_t both = sum_of(d, sum);
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
  return largest >> parameter < kExact ? small_sums(block, parameter, linear) : large_sums(block, parameter, linear);
}

// Three parameters, one after the other, and the sums of a block with each.
constexpr std::size_t kNear = 3;
struct Near {
  std::uint32_t lowest;
  Sums sums[kNear];

  bool has(std::uint32_t parameter) const { return parameter - lowest < kNear; }
};

// The same where no class is above `linear`: then the three sums fit into one number.
HWY_INLINE void sum_linear(const std::uint32_t* block, Near& near) {
  constexpr int kFirst = 11;
  constexpr int kSecond = 10;
  static_assert(kMostLinear * kNumberBlock < 1 << kFirst && kMostLinear / 2 * kNumberBlock < 1 << kSecond &&
                kMostLinear / 4 * kNumberBlock < 1 << (32 - kFirst - kSecond));
  const D d;
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const V quotient = hn::ShiftRightSame(hn::LoadU(d, block + i), static_cast<int>(near.lowest));
    const V half = hn::ShiftLeft<kFirst>(hn::ShiftRight<1>(quotient));
    const V quarter = hn::ShiftLeft<kFirst + kSecond>(hn::ShiftRight<2>(quotient));
    sum = hn::Add(hn::Add(sum, quotient), hn::Add(half, quarter));
  }
  const std::uint32_t all = sum_of(d, sum);
  near.sums[0] = {all & ((1U << kFirst) - 1), 0};
  near.sums[1] = {all >> kFirst & ((1U << kSecond) - 1), 0};
  near.sums[2] = {all >> (kFirst + kSecond), 0};
}

// The bits that a parameter takes after another one.
HWY_INLINE std::uint32_t bits_of_change(std::uint32_t from, std::uint32_t to) {
  const auto change = static_cast<std::uint32_t>(std::abs(static_cast<int>(to) - static_cast<int>(from)));
  return 1 + change + std::min(change, 1U);
}

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

// The parameter that is about right: the mean of log2(number + 1), which a float has in its bits, nearly. Also finds
// the largest numbers: one of the lanes of `most` is the largest.
HWY_INLINE std::uint32_t guess(const std::uint32_t* block, std::uint32_t count, V& most) {
  const D d;
  const hn::RebindToFloat<D> df;
  const hn::RebindToSigned<D> di;
  V sum = hn::Zero(d);  // in units of 2^-15, so that it fits
  most = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const V number = hn::LoadU(d, block + i);
    most = hn::Max(most, number);
    const V plus_one = hn::Add(hn::Min(number, hn::Set(d, 0x7FFFFFFE)), hn::Set(d, 1));
    const V bits = hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, plus_one)));
    sum = hn::Add(sum, hn::ShiftRight<8>(hn::Sub(bits, hn::Set(d, 127U << 23))));
  }
  constexpr std::uint32_t kShift = (3U << 15) / 10;  // by trial
  const std::uint32_t all = sum_of(d, sum);
  const std::uint32_t mean = count == kNumberBlock ? all / kNumberBlock : all / count;
  return (mean + kShift) >> 15;
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
  std::uint32_t counts[kNumberGroup];  // of numbers in each block
  std::size_t size = 0;                // in blocks
  Choice changed[kNumberGroup];        // the best for each block
  Choice steady[kNumberGroup];         // as in the block before the group
  std::uint32_t changed_bits = 0;      // what the group takes with these
  std::uint32_t steady_bits = 0;
};

// Finds the best parameter of a block after one with the parameter `before`; `steady` is that of the block before the
// group.
HWY_INLINE void plan_block(const NumberCode& code, std::size_t i, std::uint32_t before, std::uint32_t steady,
                           Group& group) {
  const D d;
  const auto linear = static_cast<std::uint32_t>(code.linear);
  const auto least = static_cast<std::uint32_t>(code.least_parameter);
  const std::uint32_t* const block = group.blocks[i];
  const std::uint32_t count = group.counts[i];
  V most;
  const std::uint32_t middle = std::clamp<std::uint32_t>(guess(block, count, most), least, kMostParameter);
  const std::uint32_t highest = middle + (middle < kMostParameter ? 1 : 0);
  Near near{.lowest = middle - (middle > least ? 1 : 0)};
  const V quotient = hn::ShiftRightSame(most, static_cast<int>(near.lowest));
  if (hn::AllTrue(d, hn::Eq(hn::Max(quotient, hn::Set(d, linear)), hn::Set(d, linear)))) {
    sum_linear(block, near);
  } else {
    const bool is_small = largest_of(d, most) >> near.lowest < kExact;
    for (std::uint32_t j = 0; j < kNear; ++j) {
      const std::uint32_t parameter = std::min<std::uint32_t>(near.lowest + j, kMostParameter);
      near.sums[j] = is_small ? small_sums(block, parameter, linear) : large_sums(block, parameter, linear);
    }
  }
  // The shortest of the three; of equally short ones that in the middle, then the lowest. Without branches, which would
  // be mispredicted half the time: the last two bits are the order.
  const std::uint32_t* const order = kOrders[(near.lowest < middle ? 1 : 0) + (middle < highest ? 2 : 0)];
  const std::uint8_t* const change = kBitsOfChange.of.data() + kMostParameter + near.lowest - before;
  std::uint32_t best = ~0U;
  for (std::uint32_t j = 0; j < kNear; ++j) {
    const std::uint32_t bits = Choice{near.lowest + j, near.sums[j]}.bits(count) + change[j];
    best = std::min(best, (bits << 2) + order[j]);
  }
  const std::uint32_t chosen = middle + (best >> 1 & 1) - (best & 1);
  group.changed[i] = {chosen, near.sums[chosen - near.lowest]};
  std::uint32_t best_bits = best >> 2;  // with the change of the parameter
  if (near.has(steady)) group.steady[i] = {steady, near.sums[steady - near.lowest]};
  const auto consider = [&](std::uint32_t parameter) HWY_ATTR {
    const Choice choice{parameter, sums_of(block, largest_of(d, most), parameter, linear)};
    if (parameter == steady) group.steady[i] = choice;
    const std::uint32_t bits = choice.bits(count) + bits_of_change(before, parameter);
    if (bits >= best_bits) return;
    group.changed[i] = choice;
    best_bits = bits;
  };
  const auto is_far = [&](std::uint32_t parameter) { return parameter < near.lowest || parameter > highest; };
  if (before >= least && is_far(before)) consider(before);
  if (steady >= least && steady != before && is_far(steady)) consider(steady);
  group.changed_bits += best_bits;
  if (steady >= least) group.steady_bits += group.steady[i].bits(count);
}

HWY_INLINE void plan_group(const NumberCode& code, Group& group, std::uint8_t* parameters, NumberPlan& plan) {
  const auto steady = static_cast<std::uint32_t>(plan.parameter);
  group.changed_bits = 0;
  group.steady_bits = 0;
  std::uint32_t before = steady;
  for (std::size_t i = 0; i < group.size; ++i) {
    plan_block(code, i, before, steady, group);
    before = group.changed[i].parameter;
  }
  const bool is_steady = plan.parameter >= code.least_parameter && group.steady_bits <= group.changed_bits;
  ++plan.parameter_bits;
  for (std::size_t i = 0; i < group.size; ++i) {
    const Choice& choice = is_steady ? group.steady[i] : group.changed[i];
    if (!is_steady) plan.parameter_bits += bits_of_change(static_cast<std::uint32_t>(plan.parameter), choice.parameter);
    plan.class_bits += group.counts[i] + choice.sums.bases + choice.sums.longer;
    plan.rest_bits += group.counts[i] * choice.parameter + choice.sums.longer;
    plan.parameter = static_cast<int>(choice.parameter);
    parameters[i] = static_cast<std::uint8_t>(choice.parameter);
  }
}

void plan_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, std::uint8_t* parameters,
                  NumberPlan& plan) {
  Group group;
  Block last;  // where it is not a whole one: filled up with zeros
  for (std::size_t begin = 0; begin < numbers.size();) {
    for (group.size = 0; group.size < kNumberGroup && begin < numbers.size(); ++group.size) {
      const std::uint32_t* const block = numbers.data() + begin;
      const std::size_t count = std::min(kNumberBlock, numbers.size() - begin);
      if (count < kNumberBlock) std::fill(std::copy_n(block, count, last.numbers), last.numbers + kNumberBlock, 0U);
      group.blocks[group.size] = count < kNumberBlock ? last.numbers : block;
      group.counts[group.size] = static_cast<std::uint32_t>(count);
      begin += count;
    }
    plan_group(code, group, parameters, plan);
    parameters += group.size;
  }
}

void write_parameter(int parameter, NumberWriter& writer) {
  const int change = parameter - writer.parameter;
  writer.parameter = parameter;
  if (change == 0) return writer.parameters.put(0, 1);
  const int size = std::abs(change);
  writer.parameters.put((change < 0 ? 3U : 1U) | std::uint64_t{4} << (size - 1), 2 + size);
}

// The parameters of a group.
void write_parameters(std::span<const std::uint8_t> parameters, NumberWriter& writer) {
  const bool is_steady = std::all_of(parameters.begin(), parameters.end(),
                                     [&](std::uint8_t parameter) { return parameter == writer.parameter; });
  writer.parameters.put(is_steady ? 0 : 1, 1);
  if (is_steady) return;
  for (const std::uint8_t parameter : parameters) write_parameter(parameter, writer);
}

HWY_INLINE std::uint32_t largest_of(const std::uint32_t* numbers) {
  const D d;
  V largest = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) largest = hn::Max(largest, hn::LoadU(d, numbers + i));
  return largest_of(d, largest);
}

// The numbers of a block two by two, the first in the low half: 64 bits hold the codes of both.
constexpr std::size_t kPairs = kNumberBlock / 2;
struct alignas(64) Pairs {
  std::uint64_t of[kPairs];
};
using DPairs = hn::CappedTag<std::uint64_t, kPairs>;
using VPairs = hn::Vec<DPairs>;

HWY_INLINE VPairs load_pairs(DPairs d, const std::uint32_t* numbers, std::size_t i) {
  Pairs pairs;
  std::memcpy(pairs.of, numbers + 2 * i, sizeof(std::uint64_t) * hn::Lanes(d));
  return hn::Load(d, pairs.of);
}
HWY_INLINE VPairs first_of(DPairs d, VPairs pairs) { return hn::And(pairs, hn::Set(d, 0xFFFFFFFF)); }

// Codes of two numbers each, one after the other, and how many bits they take.
struct Joined {
  Pairs bits;
  Pairs sizes;
};

HWY_INLINE void join_classes(DPairs d, VPairs first, VPairs second, std::size_t i, Joined& joined) {
  const VPairs both = hn::Add(first, second);
  hn::Store(hn::Or(hn::Shl(hn::Set(d, 1), first), hn::Shl(hn::Set(d, 2), both)), d, joined.bits.of + i);
  hn::Store(hn::Add(both, hn::Set(d, 2)), d, joined.sizes.of + i);
}

// The codes of a block. REQUIRES: quotients below kExact, rests of at most 28 bits.
HWY_INLINE void make_codes(const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear, Joined& classes,
                           Joined& rests) {
  const D d;
  Block class_ranks;
  Block rest_bits;
  Block rest_widths;
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const Quotients q = divide(d, numbers + i, parameter, linear);
    const V longer = hn::Sub(exponent(d, q.above), hn::Set(d, 127));
    const V first = hn::Sub(hn::Add(q.base, hn::Shl(hn::Set(d, 1), longer)), hn::Set(d, 1));
    const V rest = hn::Sub(hn::LoadU(d, numbers + i), hn::ShiftLeftSame(first, static_cast<int>(parameter)));
    hn::Store(hn::Add(q.base, longer), d, class_ranks.numbers + i);
    hn::Store(rest, d, rest_bits.numbers + i);
    hn::Store(hn::Add(longer, hn::Set(d, parameter)), d, rest_widths.numbers + i);
  }
  const DPairs dp;
  for (std::size_t i = 0; i < kPairs; i += hn::Lanes(dp)) {
    const VPairs ranks = load_pairs(dp, class_ranks.numbers, i);
    join_classes(dp, first_of(dp, ranks), hn::ShiftRight<32>(ranks), i, classes);
    const VPairs pairs = load_pairs(dp, rest_bits.numbers, i);
    const VPairs widths = load_pairs(dp, rest_widths.numbers, i);
    const VPairs width = first_of(dp, widths);
    const VPairs second = hn::Shl(hn::ShiftRight<32>(pairs), width);
    hn::Store(hn::Or(first_of(dp, pairs), second), dp, rests.bits.of + i);
    hn::Store(hn::Add(width, hn::ShiftRight<32>(widths)), dp, rests.sizes.of + i);
  }
}

// The same where all rests have `parameter` bits; the sizes of the rests are left out.
HWY_INLINE void make_equal_codes(const std::uint32_t* numbers, std::uint32_t parameter, Joined& classes,
                                 Joined& rests) {
  const DPairs d;
  const auto shift = static_cast<int>(parameter);
  const VPairs mask = hn::Set(d, (std::uint64_t{1} << parameter) - 1);
  for (std::size_t i = 0; i < kPairs; i += hn::Lanes(d)) {
    const VPairs pairs = load_pairs(d, numbers, i);
    const VPairs second = hn::ShiftRight<32>(pairs);
    join_classes(d, hn::ShiftRightSame(first_of(d, pairs), shift), hn::ShiftRightSame(second, shift), i, classes);
    const VPairs second_rest = hn::ShiftLeftSame(hn::And(second, mask), shift);
    hn::Store(hn::Or(hn::And(pairs, mask), second_rest), d, rests.bits.of + i);
  }
}

// Writes codes, those of kEach pairs together. size(i) is how many bits a pair has. REQUIRES: that they fit.
template <std::size_t kEach, class Size>
HWY_INLINE void put_pairs(const Pairs& pairs, const Size& size, BitWriter& writer) {
  for (std::size_t i = 0; i < kPairs; i += kEach) {
    std::uint64_t bits = 0;
    std::uint64_t used = 0;
    for (std::size_t j = 0; j < kEach; ++j) {
      bits |= pairs.of[i + j] << used;
      used += size(i + j);
    }
    writer.put(bits, static_cast<int>(used));
  }
}

// So many bits a code may have, if two or four of them are written together.
constexpr std::uint32_t kTwo = BitWriter::kMost / 2;
constexpr std::uint32_t kFour = BitWriter::kMost / 4;

template <class Size>
HWY_INLINE void put_rests(const Pairs& rests, std::uint32_t widest, const Size& size, BitWriter& writer) {
  if (widest <= kFour) {
    put_pairs<2>(rests, size, writer);
  } else {
    put_pairs<1>(rests, size, writer);
  }
}

void put_slowly(std::span<const std::uint32_t> numbers, std::uint32_t parameter, std::uint32_t linear,
                BitWriter& classes, BitWriter& rests) {
  for (const std::uint32_t number : numbers) {
    const Place place = place_of(number, parameter, linear);
    std::uint32_t zeros = place.rank;
    for (; zeros >= 32; zeros -= 32) classes.put(0, 32);
    classes.put(std::uint64_t{1} << zeros, static_cast<int>(zeros) + 1);
    rests.put(number - static_cast<std::uint32_t>(std::uint64_t{place.first} << parameter),
              static_cast<int>(parameter + place.longer));
  }
}

void write_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, const std::uint8_t* parameters,
                   NumberWriter& writer) {
  const auto linear = static_cast<std::uint32_t>(code.linear);
  // Local copies, which the compiler can keep in registers.
  BitWriter classes = writer.classes;
  BitWriter rests = writer.rests;
  Joined joined_classes;
  Joined joined_rests;
  for (std::size_t begin = 0; begin < numbers.size(); begin += kNumberBlock) {
    if (begin % (kNumberGroup * kNumberBlock) == 0) {
      const std::size_t blocks = (numbers.size() - begin + kNumberBlock - 1) / kNumberBlock;
      write_parameters({parameters, std::min(kNumberGroup, blocks)}, writer);
    }
    const std::uint32_t parameter = *parameters++;
    const auto block = numbers.subspan(begin, std::min(kNumberBlock, numbers.size() - begin));
    const std::uint32_t largest = block.size() < kNumberBlock ? ~0U : largest_of(block.data());
    const Place highest = place_of(largest, parameter, linear);
    const std::uint32_t widest = parameter + highest.longer;
    if (block.size() < kNumberBlock || largest >> parameter >= kExact || highest.rank >= kFour || widest > kTwo) {
      put_slowly(block, parameter, linear, classes, rests);
      continue;
    }
    const auto class_size = [&](std::size_t i) { return joined_classes.sizes.of[i]; };
    if (highest.longer == 0) {
      make_equal_codes(block.data(), parameter, joined_classes, joined_rests);
      put_pairs<2>(joined_classes.bits, class_size, classes);
      put_rests(
          joined_rests.bits, widest, [&](std::size_t /*i*/) { return std::uint64_t{2} * parameter; }, rests);
    } else {
      make_codes(block.data(), parameter, linear, joined_classes, joined_rests);
      put_pairs<2>(joined_classes.bits, class_size, classes);
      put_rests(
          joined_rests.bits, widest, [&](std::size_t i) { return joined_rests.sizes.of[i]; }, rests);
    }
  }
  writer.classes = classes;
  writer.rests = rests;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(plan_numbers);
HWY_EXPORT(write_numbers);
}  // namespace

void plan_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, std::uint8_t* parameters,
                  NumberPlan& plan) noexcept {
  HWY_DYNAMIC_DISPATCH(plan_numbers)(code, numbers, parameters, plan);
}

void write_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, const std::uint8_t* parameters,
                   NumberWriter& writer) noexcept {
  HWY_DYNAMIC_DISPATCH(write_numbers)(code, numbers, parameters, writer);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
