// Writes numbers in blocks (numbers.h) with the parameters that plan_numbers.cc chose. Compiled for each SIMD level
// (see golomb.cc).
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/numbers.h"
#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/write_numbers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/number_classes.h"  // must come after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

// The code of a change of the parameter.
struct ChangeCodes {
  std::array<std::uint64_t, 2 * kMostParameter + 1> bits;
  std::array<std::uint8_t, 2 * kMostParameter + 1> sizes;

  constexpr ChangeCodes() : bits(), sizes() {
    for (int change = -kMostParameter; change <= kMostParameter; ++change) {
      const auto i = static_cast<std::size_t>(change + kMostParameter);
      const int size = change < 0 ? -change : change;
      bits[i] = change == 0 ? 0 : (change < 0 ? 3U : 1U) | std::uint64_t{4} << (size - 1);
      sizes[i] = static_cast<std::uint8_t>(change == 0 ? 1 : 2 + size);
    }
  }
};
constexpr ChangeCodes kChangeCodes;

HWY_NOINLINE void write_parameters_slowly(std::span<const std::uint8_t> parameters, NumberWriter& writer) {
  writer.parameters.put(1, 1);
  for (const std::uint8_t parameter : parameters) {
    const auto i = static_cast<std::size_t>(parameter - writer.parameter + kMostParameter);
    writer.parameters.put(kChangeCodes.bits[i], kChangeCodes.sizes[i]);
    writer.parameter = parameter;
  }
}

// The parameters of a group. All in one piece where they fit, without branches that would be mispredicted.
void write_parameters(std::span<const std::uint8_t> parameters, NumberWriter& writer) {
  const int before = writer.parameter;
  int last = before;
  int differences = 0;
  std::uint64_t bits = 1;
  std::uint32_t size = 1;
  for (const std::uint8_t parameter : parameters) {
    const auto i = static_cast<std::size_t>(parameter - last + kMostParameter);
    bits |= kChangeCodes.bits[i] << size % 64;
    size += kChangeCodes.sizes[i];
    differences |= parameter ^ before;
    last = parameter;
  }
  if (size > BitWriter::kMost) return write_parameters_slowly(parameters, writer);
  const bool is_steady = differences == 0;
  writer.parameters.put(is_steady ? 0 : bits, is_steady ? 1 : static_cast<int>(size));
  writer.parameter = last;
}

HWY_INLINE std::uint32_t largest_of(const std::uint32_t* numbers) {
  const D d;
  V largest = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) largest = hn::Max(largest, hn::LoadU(d, numbers + i));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// The numbers of a block two by two, the first in the low half.
constexpr std::size_t kPairs = kNumberBlock / 2;
constexpr std::size_t kFours = kNumberBlock / 4;
using DFours = hn::CappedTag<std::uint64_t, kFours>;
using VFours = hn::Vec<DFours>;

// One number in each lane: the first, second, third or fourth of four.
struct OfFour {
  VFours of[4];
};

HWY_INLINE OfFour load_fours(DFours d, const std::uint32_t* numbers, std::size_t i) {
  alignas(64) std::uint64_t pairs[kPairs];
  std::memcpy(pairs, numbers + 4 * i, 2 * sizeof(std::uint64_t) * hn::Lanes(d));
  VFours first;
  VFours second;
  hn::LoadInterleaved2(d, pairs, first, second);
  const VFours low = hn::Set(d, 0xFFFFFFFF);
  return {{hn::And(first, low), hn::ShiftRight<32>(first), hn::And(second, low), hn::ShiftRight<32>(second)}};
}

// Codes and how many bits they take, in each lane.
struct Codes {
  VFours bits;
  VFours sizes;
};

// Those of `first`, followed by those of `second`.
HWY_INLINE Codes join(Codes first, Codes second) {
  return {hn::Or(first.bits, hn::Shl(second.bits, first.sizes)), hn::Add(first.sizes, second.sizes)};
}

// The same in memory, of some blocks. A word has the codes of four numbers or of two: 64 bits hold them. They are
// written when there are many: so one loop is about vectors, the other about one word after the other, and the
// processor works on many blocks at a time.
constexpr std::size_t kBlocksOfWords = 8;
struct Words {
  alignas(64) std::uint64_t bits[kBlocksOfWords * kPairs];
  alignas(64) std::uint64_t sizes[kBlocksOfWords * kPairs];
  std::size_t count = 0;
};

HWY_INLINE void store_classes(DFours d, const OfFour& ranks, std::size_t i, Words& classes) {
  const VFours one = hn::Set(d, 1);
  const auto code = [&](std::size_t j) HWY_ATTR { return Codes{hn::Shl(one, ranks.of[j]), hn::Add(ranks.of[j], one)}; };
  const Codes all = join(join(code(0), code(1)), join(code(2), code(3)));
  hn::Store(all.bits, d, classes.bits + classes.count + i);
  hn::Store(all.sizes, d, classes.sizes + classes.count + i);
}

HWY_INLINE void store_rests(DFours d, const OfFour& bits, const OfFour& widths, bool are_narrow, std::size_t i,
                            Words& rests) {
  const Codes first = join({bits.of[0], widths.of[0]}, {bits.of[1], widths.of[1]});
  const Codes second = join({bits.of[2], widths.of[2]}, {bits.of[3], widths.of[3]});
  if (are_narrow) {
    const Codes all = join(first, second);
    hn::Store(all.bits, d, rests.bits + rests.count + i);
    hn::Store(all.sizes, d, rests.sizes + rests.count + i);
  } else {
    hn::StoreInterleaved2(first.bits, second.bits, d, rests.bits + rests.count + 2 * i);
    hn::StoreInterleaved2(first.sizes, second.sizes, d, rests.sizes + rests.count + 2 * i);
  }
}

// The codes of a block: classes in words of four, rests in words of four if they are narrow, else of two. REQUIRES:
// quotients below kExact.
HWY_INLINE void make_codes(const std::uint32_t* numbers, std::uint32_t parameter, std::uint32_t linear, bool are_narrow,
                           Words& classes, Words& rests) {
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
  const DFours df;
  for (std::size_t i = 0; i < kFours; i += hn::Lanes(df)) {
    store_classes(df, load_fours(df, class_ranks.numbers, i), i, classes);
    store_rests(df, load_fours(df, rest_bits.numbers, i), load_fours(df, rest_widths.numbers, i), are_narrow, i, rests);
  }
}

// The same where all rests have `parameter` bits.
HWY_INLINE void make_equal_codes(const std::uint32_t* numbers, std::uint32_t parameter, bool are_narrow, Words& classes,
                                 Words& rests) {
  const DFours d;
  const VFours width = hn::Set(d, parameter);
  const VFours mask = hn::Set(d, (std::uint64_t{1} << parameter) - 1);
  for (std::size_t i = 0; i < kFours; i += hn::Lanes(d)) {
    OfFour numbers_here = load_fours(d, numbers, i);
    OfFour ranks;
    for (std::size_t j = 0; j < 4; ++j) {
      ranks.of[j] = hn::ShiftRightSame(numbers_here.of[j], static_cast<int>(parameter));
      numbers_here.of[j] = hn::And(numbers_here.of[j], mask);
    }
    store_classes(d, ranks, i, classes);
    store_rests(d, numbers_here, {{width, width, width, width}}, are_narrow, i, rests);
  }
}

HWY_INLINE void put_word(const Words& words, std::size_t i, BitWriter& writer) {
  writer.put(words.bits[i], static_cast<int>(words.sizes[i]));
}

HWY_INLINE void put_words(Words& classes, Words& rests, BitWriter& class_writer, BitWriter& rest_writer) {
  BitWriter of_classes = class_writer;  // in registers
  BitWriter of_rests = rest_writer;
  // Each word waits for the one before it in its stream, so those of both streams are written in turn.
  std::size_t i = 0;
  for (; i < classes.count; ++i) {
    put_word(classes, i, of_classes);
    put_word(rests, i, of_rests);
  }
  for (; i < rests.count; ++i) put_word(rests, i, of_rests);
  class_writer = of_classes;
  rest_writer = of_rests;
  classes.count = rests.count = 0;
}

// So many bits a code may have, if two or four of them are written together.
constexpr std::uint32_t kTwo = BitWriter::kMost / 2;
constexpr std::uint32_t kFour = BitWriter::kMost / 4;

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
  Words class_words;
  Words rest_words;
  const auto put_all = [&] { put_words(class_words, rest_words, classes, rests); };
  const bool are_equal = linear + 1 >= kFour;  // larger classes than those of equal size are written slowly
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
      put_all();
      put_slowly(block, parameter, linear, classes, rests);
      continue;
    }
    const bool are_narrow = widest <= kFour;
    if (are_equal) {
      make_equal_codes(block.data(), parameter, are_narrow, class_words, rest_words);
    } else {
      make_codes(block.data(), parameter, linear, are_narrow, class_words, rest_words);
    }
    class_words.count += kFours;
    rest_words.count += are_narrow ? kFours : kPairs;
    if (class_words.count == kBlocksOfWords * kFours) put_all();
  }
  put_all();
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
HWY_EXPORT(write_numbers);
}  // namespace

void write_numbers(const NumberCode& code, std::span<const std::uint32_t> numbers, const std::uint8_t* parameters,
                   NumberWriter& writer) noexcept {
  HWY_DYNAMIC_DISPATCH(write_numbers)(code, numbers, parameters, writer);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
