// Scalar code and plain loops that vectorise, compiled for each SIMD level (see golomb.cc).
#include "kernels/numbers.h"

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
  V above;  // 1 for a number at or below linear, at most kExact
};

HWY_INLINE Quotients divide(D d, const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear) {
  const V quotient = hn::ShiftRightSame(hn::LoadU(d, numbers), static_cast<int>(parameter));
  const V base = hn::Min(quotient, hn::Set(d, linear));
  return {base, hn::Add(hn::Min(hn::Sub(quotient, base), hn::Set(d, kExact - 1)), hn::Set(d, 1))};
}

HWY_INLINE std::uint32_t sum_of(D d, V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }
HWY_INLINE std::uint32_t largest_of(D d, V v) { return hn::GetLane(hn::MaxOfLanes(d, v)); }

// Sums over a block: of the parts of the classes up to `linear`, and of those above, which are also what rests have
// more than `parameter` bits.
struct Sums {
  std::uint32_t bases;
  std::uint32_t longer;
};

// REQUIRES: `largest` is the largest number of the block.
HWY_INLINE Sums sums_of(const Block& block, std::uint32_t largest, std::uint32_t parameter, std::uint32_t linear) {
  const D d;
  V sum = hn::Zero(d);
  if (largest >> parameter <= linear) {
    for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
      sum = hn::Add(sum, hn::ShiftRightSame(hn::Load(d, block.numbers + i), static_cast<int>(parameter)));
    }
    return {sum_of(d, sum), 0};
  }
  if (largest >> parameter >= kExact) [[unlikely]] {
    Sums sums{0, 0};
    for (const std::uint32_t number : block.numbers) {
      const Place place = place_of(number, parameter, linear);
      sums.bases += place.rank - place.longer;
      sums.longer += place.longer;
    }
    return sums;
  }
  // Both sums in one.
  static_assert(kMostLinear * kNumberBlock < 1 << 16);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const Quotients q = divide(d, block.numbers + i, parameter, linear);
    sum = hn::Add(sum, hn::Add(q.base, hn::ShiftLeft<16>(exponent(d, q.above))));
  }
  const std::uint32_t both = sum_of(d, sum);
  return {both & 0xFFFF, (both >> 16) - 127 * static_cast<std::uint32_t>(kNumberBlock)};
}

// The bits that a parameter takes after another one.
HWY_INLINE std::uint32_t bits_of_change(std::uint32_t from, std::uint32_t to) {
  return from == to ? 1 : 2 + (from < to ? to - from : from - to);
}

// The parameter that is about right: the mean of log2(number + 1), which a float has in its bits, nearly. Also finds
// the largest number.
HWY_INLINE std::uint32_t guess(const Block& block, std::uint32_t count, std::uint32_t& largest) {
  const D d;
  const hn::RebindToFloat<D> df;
  const hn::RebindToSigned<D> di;
  V sum = hn::Zero(d);  // in units of 2^-15, so that it fits
  V most = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::Load(d, block.numbers + i));
    const V number = hn::Min(hn::Load(d, block.numbers + i), hn::Set(d, 0x7FFFFFFE));
    const V plus_one = hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, hn::Add(number, hn::Set(d, 1)))));
    sum = hn::Add(sum, hn::ShiftRight<8>(hn::Sub(plus_one, hn::Set(d, 127U << 23))));
  }
  largest = largest_of(d, most);
  constexpr std::uint32_t kShift = (3U << 15) / 10;  // by trial
  return (sum_of(d, sum) / count + kShift) >> 15;
}

// A parameter for a block.
struct Choice {
  std::uint32_t parameter;
  Sums sums;

  std::uint32_t bits(std::uint32_t count) const { return sums.bases + 2 * sums.longer + count * (parameter + 1); }
};

// A group of blocks, and the parameters that it may take.
struct Group {
  Block blocks[kNumberGroup];
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
  const auto linear = static_cast<std::uint32_t>(code.linear);
  const auto least = static_cast<std::uint32_t>(code.least_parameter);
  const std::uint32_t count = group.counts[i];
  std::uint32_t largest;
  const std::uint32_t middle = std::clamp<std::uint32_t>(guess(group.blocks[i], count, largest), least, kMostParameter);
  std::uint32_t best_bits = ~0U;  // with the change of the parameter
  const auto consider = [&](std::uint32_t parameter) HWY_ATTR {
    const Choice choice{parameter, sums_of(group.blocks[i], largest, parameter, linear)};
    if (parameter == steady) group.steady[i] = choice;
    const std::uint32_t bits = choice.bits(count) + bits_of_change(before, parameter);
    if (bits >= best_bits) return;
    group.changed[i] = choice;
    best_bits = bits;
  };
  const auto is_far = [&](std::uint32_t parameter) { return parameter + 1 < middle || parameter > middle + 1; };
  consider(middle);
  if (middle > least) consider(middle - 1);
  if (middle < kMostParameter) consider(middle + 1);
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
  for (std::size_t begin = 0; begin < numbers.size();) {
    for (group.size = 0; group.size < kNumberGroup && begin < numbers.size(); ++group.size) {
      std::uint32_t* const block = group.blocks[group.size].numbers;
      const std::size_t count = std::min(kNumberBlock, numbers.size() - begin);
      std::copy_n(numbers.data() + begin, count, block);
      std::fill(block + count, block + kNumberBlock, 0U);
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

// The codes of a block: `classes[i]` is its class; the rest has `widths[i]` bits.
struct Codes {
  Block classes;
  Block rests;
  Block widths;
};

HWY_INLINE std::uint32_t largest_of(const std::uint32_t* numbers) {
  const D d;
  V largest = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) largest = hn::Max(largest, hn::LoadU(d, numbers + i));
  return largest_of(d, largest);
}

// REQUIRES: quotients below kExact.
HWY_INLINE void make_codes(const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear, Codes& codes) {
  const D d;
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const Quotients q = divide(d, numbers + i, parameter, linear);
    const V longer = hn::Sub(exponent(d, q.above), hn::Set(d, 127));
    const V first = hn::Sub(hn::Add(q.base, hn::Shl(hn::Set(d, 1), longer)), hn::Set(d, 1));
    const V rest = hn::Sub(hn::LoadU(d, numbers + i), hn::ShiftLeftSame(first, static_cast<int>(parameter)));
    hn::Store(hn::Add(q.base, longer), d, codes.classes.numbers + i);
    hn::Store(rest, d, codes.rests.numbers + i);
    hn::Store(hn::Add(longer, hn::Set(d, parameter)), d, codes.widths.numbers + i);
  }
}

// The same where all rests have `parameter` bits.
HWY_INLINE void make_equal_codes(const std::uint32_t* numbers, std::uint32_t parameter, Codes& codes) {
  const D d;
  const V mask = hn::Set(d, (1U << parameter) - 1);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const V number = hn::LoadU(d, numbers + i);
    hn::Store(hn::ShiftRightSame(number, static_cast<int>(parameter)), d, codes.classes.numbers + i);
    hn::Store(hn::And(number, mask), d, codes.rests.numbers + i);
  }
}

// Writes the rests, kEach of them together. width(i) is how many bits one has. REQUIRES: that they fit.
template <std::size_t kEach, class Width>
HWY_INLINE void put_rests(const Codes& codes, const Width& width, BitWriter& writer) {
  for (std::size_t i = 0; i < kNumberBlock; i += kEach) {
    std::uint64_t bits = 0;
    std::uint32_t size = 0;
    for (std::size_t j = 0; j < kEach; ++j) {
      bits |= std::uint64_t{codes.rests.numbers[i + j]} << size;
      size += width(i + j);
    }
    writer.put(bits, static_cast<int>(size));
  }
}

constexpr std::uint32_t kFour = BitWriter::kMost / 4;  // four of so many bits can be written together

template <class Width>
HWY_INLINE void put_rests(const Codes& codes, std::uint32_t widest, const Width& width, BitWriter& writer) {
  if (widest <= kFour) {
    put_rests<4>(codes, width, writer);
  } else if (widest <= 2 * kFour) {
    put_rests<2>(codes, width, writer);
  } else {
    put_rests<1>(codes, width, writer);
  }
}

HWY_INLINE void put_classes(const Codes& codes, BitWriter& writer) {
  for (std::size_t i = 0; i < kNumberBlock; i += 4) {
    std::uint64_t bits = 0;
    std::uint32_t size = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      size += codes.classes.numbers[i + j];
      bits |= std::uint64_t{1} << size++;
    }
    writer.put(bits, static_cast<int>(size));
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
  Codes codes;
  for (std::size_t begin = 0; begin < numbers.size(); begin += kNumberBlock) {
    if (begin % (kNumberGroup * kNumberBlock) == 0) {
      const std::size_t blocks = (numbers.size() - begin + kNumberBlock - 1) / kNumberBlock;
      write_parameters({parameters, std::min(kNumberGroup, blocks)}, writer);
    }
    const std::uint32_t parameter = *parameters++;
    const auto block = numbers.subspan(begin, std::min(kNumberBlock, numbers.size() - begin));
    const std::uint32_t largest = block.size() < kNumberBlock ? ~0U : largest_of(block.data());
    const Place highest = place_of(largest, parameter, linear);
    if (block.size() < kNumberBlock || largest >> parameter >= kExact || highest.rank >= kFour) {
      put_slowly(block, parameter, linear, classes, rests);
    } else if (highest.longer == 0) {
      make_equal_codes(block.data(), parameter, codes);
      put_classes(codes, classes);
      put_rests(
          codes, parameter, [&](std::size_t /*i*/) { return parameter; }, rests);
    } else {
      make_codes(block.data(), parameter, linear, codes);
      put_classes(codes, classes);
      put_rests(
          codes, parameter + highest.longer, [&](std::size_t i) { return codes.widths.numbers[i]; }, rests);
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
