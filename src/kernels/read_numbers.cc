// Reads numbers in blocks (numbers.h). Compiled for each SIMD level (see golomb.cc).
#include "kernels/numbers.h"
#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/read_numbers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/add_up.h"  // must come after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE std::uint64_t load(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t word = 0;
  if (at + 8 <= bytes.size()) {
    std::memcpy(&word, bytes.data() + at, 8);
  } else if (at < bytes.size()) {
    std::memcpy(&word, bytes.data() + at, bytes.size() - at);
  }
  return word;
}

// The positions of the ones of each byte, in ascending order, a byte for each.
constexpr std::array<std::uint64_t, 256> kOnes = [] {
  std::array<std::uint64_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    int shift = 0;
    for (std::uint64_t bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1) == 0) continue;
      table[byte] |= bit << shift;
      shift += 8;
    }
  }
  return table;
}();

// The position of the first bit of each byte of four words, eight times.
constexpr std::array<std::uint64_t, 32> kBytes = [] {
  std::array<std::uint64_t, 32> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0x0101010101010101 * (8 * i);
  return table;
}();

// What find_ones() may write after the numbers that it was asked for.
constexpr std::size_t kMoreOnes = 64 + 8;

// Finds the next `count` ones of the stream: their positions mod 256, counted from the byte in which the stream's
// position is. False if the stream ends before, or if more zeros than in any class follow each other. After true there
// are fewer than 256 zeros between two ones.
HWY_INLINE bool find_ones(NumberReader::Stream& stream, std::size_t count, std::uint8_t* ones) {
  std::size_t at = stream.position / 8;
  std::uint64_t word = load(stream.bytes, at) >> stream.position % 8 << stream.position % 8;
  const std::uint64_t* bytes = kBytes.data();
  std::size_t found = 0;
  int empty = 0;  // words without a one
  for (;;) {
    empty = word == 0 ? empty + 1 : 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint64_t byte = word >> 8 * i & 0xFF;
      const std::uint64_t positions = kOnes[byte] | bytes[i];  // after the last one: garbage, written over later
      std::memcpy(ones + found, &positions, sizeof(positions));
      found += static_cast<std::size_t>(std::popcount(byte));
    }
    if (found >= count) break;
    at += 8;
    if (at >= stream.bytes.size() || empty == 3) return false;
    word = load(stream.bytes, at);
    bytes = bytes == kBytes.data() + 24 ? kBytes.data() : bytes + 8;
  }
  stream.position = at * 8 + ones[count - 1] % 64 + 1;
  return true;
}

// Reads whether the next blocks keep the parameter.
HWY_INLINE bool read_steady(NumberReader& reader, bool& is_steady) {
  NumberReader::Stream& stream = reader.parameters;
  if (stream.position / 8 >= stream.bytes.size()) return false;
  const auto byte = std::to_integer<std::uint32_t>(stream.bytes[stream.position / 8]);
  is_steady = (byte >> stream.position++ % 8 & 1) == 0;
  return true;
}

// Reads the parameter of the next block.
HWY_INLINE bool read_parameter(NumberReader& reader) {
  NumberReader::Stream& stream = reader.parameters;
  const std::uint64_t end = stream.bytes.size() * 8;
  if (stream.position >= end) return false;
  const std::uint64_t window = load(stream.bytes, stream.position / 8) >> stream.position % 8;
  if ((window & 1) == 0) {
    ++stream.position;
    return true;
  }
  const int zeros = std::countr_zero(window >> 2);
  if (zeros >= kMostParameter) return false;
  const int change = zeros + 1;
  reader.parameter += (window & 2) != 0 ? -change : change;
  stream.position += static_cast<std::uint64_t>(2 + change);
  return stream.position <= end && reader.parameter <= kMostParameter;
}

// The classes of a block.
struct alignas(32) Classes {
  std::uint8_t of[kNumberBlock];
};

// The classes of a block, of which the ones end at ones[0], ones[1], ... Returns whether none is above `linear`.
HWY_INLINE bool find_classes(const std::uint8_t* ones, std::uint32_t linear, Classes& classes) {
  const hn::CappedTag<std::uint8_t, kNumberBlock> d;
  auto higher = hn::Zero(d);
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const auto rank = hn::Sub(hn::Sub(hn::LoadU(d, ones + i), hn::LoadU(d, ones + i - 1)), hn::Set(d, 1));
    hn::Store(rank, d, classes.of + i);
    higher = hn::Or(higher, hn::SaturatedSub(rank, hn::Set(d, static_cast<std::uint8_t>(linear))));
  }
  return hn::AllTrue(d, hn::Eq(higher, hn::Zero(d)));
}

// The highest class of the first `count` ones.
HWY_INLINE std::uint32_t highest_of(const Classes& classes, std::size_t count) {
  std::uint8_t highest = 0;
  if (count == kNumberBlock) {  // this loop vectorises
    for (std::size_t i = 0; i < kNumberBlock; ++i) highest = std::max(highest, classes.of[i]);
  } else {
    for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, classes.of[i]);
  }
  return highest;
}

constexpr std::uint32_t kMostEqual = 25;  // bits that are within four bytes, wherever they begin in the first one

// Reads the rests of a block in which all have `parameter` bits. Eight of them are a whole number of bytes, so that the
// next eight are found in the same places. REQUIRES: parameter <= kMostEqual; kMargin bits.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void read_equal_rests(NumberReader::Stream& stream, const Classes& classes, std::uint32_t parameter,
                                 std::uint32_t* numbers) {
  const std::uint32_t mask = (1U << parameter) - 1;
  for (std::size_t i = 0; i < kNumberBlock; ++i, stream.position += parameter) {
    std::uint32_t window;
    std::memcpy(&window, stream.bytes.data() + stream.position / 8, sizeof(window));
    numbers[i] = (window >> stream.position % 8 & mask) + (std::uint32_t{classes.of[i]} << parameter);
  }
}
#else
constexpr std::size_t kGroup = 8;
using Part = hn::FixedTag<std::uint8_t, 16>;  // of these bytes four rests of kMostEqual bits need at most 14

// The 16 bytes at `first`, and those at `second` if a vector has room for them.
template <class D>
HWY_INLINE hn::Vec<D> load_parts(D d, const std::uint8_t* first, const std::uint8_t* second) {
  if constexpr (hn::MaxLanes(d) == hn::MaxLanes(Part())) {
    return hn::LoadU(d, first);
  } else {
    return hn::Combine(d, hn::LoadU(Part(), second), hn::LoadU(Part(), first));
  }
}

HWY_INLINE void read_equal_rests(NumberReader::Stream& stream, const Classes& classes, std::uint32_t parameter,
                                 std::uint32_t* numbers) {
  const hn::CappedTag<std::uint32_t, kGroup> d;
  using V = hn::Vec<decltype(d)>;
  const hn::Repartition<std::uint8_t, decltype(d)> d_bytes;
  const hn::Rebind<std::uint8_t, decltype(d)> d_classes;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  constexpr std::size_t kVectors = kGroup / kLanes;

  // Of each of the eight: the byte in which it begins, as the indices of four bytes, and the bit in that byte.
  const auto offset = static_cast<std::uint32_t>(stream.position % 8);
  const std::uint32_t middle = (offset + 4 * parameter) / 8;  // where the second four begin
  V bytes[kVectors];
  V bits[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) {
    const V i = hn::Iota(d, static_cast<std::uint32_t>(v * kLanes));
    const V begin = hn::Add(hn::Mul(i, hn::Set(d, parameter)), hn::Set(d, offset));
    const V base = hn::IfThenElseZero(hn::Gt(i, hn::Set(d, 3)), hn::Set(d, middle));
    const V byte = hn::Sub(hn::ShiftRight<3>(begin), base);
    bytes[v] = hn::Add(hn::Mul(byte, hn::Set(d, 0x01010101)), hn::Set(d, 0x03020100));
    bits[v] = hn::And(begin, hn::Set(d, 7));
  }
  const V mask = hn::Set(d, (1U << parameter) - 1);
  const auto* from = reinterpret_cast<const std::uint8_t*>(stream.bytes.data()) + stream.position / 8;
  for (std::size_t i = 0; i < kNumberBlock; i += kGroup, from += parameter) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto window = load_parts(d_bytes, from + v * middle, from + middle);
      const V word = hn::BitCast(d, hn::TableLookupBytes(window, hn::BitCast(d_bytes, bytes[v])));
      const V rest = hn::And(hn::Shr(word, bits[v]), mask);
      const V rank = hn::PromoteTo(d, hn::Load(d_classes, classes.of + i + v * kLanes));
      hn::StoreU(hn::Add(rest, hn::ShiftLeftSame(rank, static_cast<int>(parameter))), d, numbers + i + v * kLanes);
    }
  }
  stream.position += kNumberBlock * parameter;
}
#endif

// Reads the rests one by one and with care: for the end of the stream, and for numbers that may exceed 32 bits.
bool read_rests_slowly(NumberReader::Stream& stream, std::uint32_t parameter, std::uint32_t linear,
                       std::span<const std::uint8_t> classes, std::uint32_t* numbers) {
  for (const std::uint32_t rank : classes) {
    const std::uint32_t base = std::min(rank, linear);
    const std::uint64_t first = base + (std::uint64_t{1} << (rank - base)) - 1;
    const std::uint32_t width = parameter + rank - base;
    const std::uint64_t window = load(stream.bytes, stream.position / 8) >> stream.position % 8;
    const std::uint64_t number = (first << parameter) + (window & ((std::uint64_t{1} << width) - 1));
    stream.position += width;
    if (stream.position > stream.bytes.size() * 8 || number > 0xFFFFFFFF) return false;
    *numbers++ = static_cast<std::uint32_t>(number);
  }
  return true;
}

using DRests = hn::CappedTag<std::uint32_t, 8>;
using VRests = hn::Vec<DRests>;

// The 32 bits from each of the places `begin` on, which are bits after `from`. kIsNarrow: only the lower 25 of them,
// and the places of four neighbours are within 75 bits.
template <bool kIsNarrow>
HWY_INLINE VRests windows_at(DRests d, const std::byte* from, VRests begin) {
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  HWY_ALIGN std::uint32_t places[kLanes];
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kIsNarrow) {
    const hn::Repartition<std::uint8_t, DRests> d_bytes;
    const VRests byte = hn::ShiftRight<3>(begin);
    const VRests after_first = hn::Sub(byte, hn::Broadcast<0>(byte));  // of four neighbours
    const VRests bytes = hn::Add(hn::Mul(after_first, hn::Set(d, 0x01010101)), hn::Set(d, 0x03020100));
    hn::Store(byte, d, places);
    const auto* const at = reinterpret_cast<const std::uint8_t*>(from);
    const auto window = load_parts(d_bytes, at + places[0], at + places[kLanes - 4]);
    const VRests word = hn::BitCast(d, hn::TableLookupBytes(window, hn::BitCast(d_bytes, bytes)));
    return hn::Shr(word, hn::And(begin, hn::Set(d, 7)));
  }
#endif
  hn::Store(begin, d, places);
  for (std::uint32_t& place : places) {
    std::uint64_t window;
    std::memcpy(&window, from + place / 8, sizeof(window));
    place = static_cast<std::uint32_t>(window >> place % 8);
  }
  return hn::Load(d, places);
}

// Reads the rests of a block, each of at most 31 bits, or of kMostEqual if kIsNarrow. REQUIRES: numbers below 2^32;
// kMargin bits.
template <bool kIsNarrow>
HWY_INLINE void read_rests(NumberReader::Stream& stream, const Classes& classes, std::uint32_t parameter,
                           std::uint32_t linear, std::uint32_t* numbers) {
  const DRests d;
  const hn::Rebind<std::uint8_t, DRests> d_classes;
  const VRests one = hn::Set(d, 1);
  const std::byte* const from = stream.bytes.data() + stream.position / 8;
  VRests end = hn::Set(d, static_cast<std::uint32_t>(stream.position % 8));
  for (std::size_t i = 0; i < kNumberBlock; i += hn::Lanes(d)) {
    const VRests rank = hn::PromoteTo(d, hn::Load(d_classes, classes.of + i));
    const VRests base = hn::Min(rank, hn::Set(d, linear));
    const VRests longer = hn::Sub(rank, base);
    const VRests first = hn::Sub(hn::Add(base, hn::Shl(one, longer)), one);  // of the class
    const VRests width = hn::Add(longer, hn::Set(d, parameter));
    const auto sums = add_up_lanes(d, width);
    const VRests begin = hn::Sub(hn::Add(end, sums.up_to), width);
    const VRests mask = hn::Sub(hn::Shl(one, width), one);
    const VRests rest = hn::And(windows_at<kIsNarrow>(d, from, begin), mask);
    hn::StoreU(hn::Add(rest, hn::ShiftLeftSame(first, static_cast<int>(parameter))), d, numbers + i);
    end = hn::Add(end, sums.all);
  }
  stream.position = stream.position / 8 * 8 + hn::GetLane(end);
}

bool read_numbers(const NumberCode& code, NumberReader& reader, std::span<std::uint32_t> numbers) {
  constexpr std::uint64_t kMargin = kNumberBlock * 32 + 64;  // the most bits that reading the rests of a block touches
  static_assert(kMargin >= 8 * (kNumberBlock / 8 * kMostEqual + 16));
  const auto linear = static_cast<std::uint32_t>(code.linear);
  std::array<std::uint8_t, 1 + kMostNumbers + kMoreOnes> found;
  static_assert(kMoreOnes >= kNumberBlock);  // so that the last block may be read as a whole one
  std::uint8_t* const ones = found.data() + 1;
  if (numbers.empty()) return true;
  found[0] = static_cast<std::uint8_t>(reader.classes.position % 8 - 1);  // the last one before these
  if (!find_ones(reader.classes, numbers.size(), ones)) return false;
  const std::uint64_t end = reader.rests.bytes.size() * 8;

  Classes classes;
  bool is_steady = false;
  for (std::size_t begin = 0; begin < numbers.size(); begin += kNumberBlock) {
    if (begin % (kNumberGroup * kNumberBlock) == 0 && !read_steady(reader, is_steady)) return false;
    if (!is_steady && !read_parameter(reader)) return false;
    if (reader.parameter < code.least_parameter) return false;  // before the first block it is 0
    const auto parameter = static_cast<std::uint32_t>(reader.parameter);
    const std::size_t count = std::min(kNumberBlock, numbers.size() - begin);
    const bool is_fast = count == kNumberBlock && reader.rests.position + kMargin <= end;
    // All classes are below 64, so all numbers below 2^32.
    if (find_classes(ones + begin, linear, classes) && is_fast && parameter <= kMostEqual) [[likely]] {
      read_equal_rests(reader.rests, classes, parameter, numbers.data() + begin);
      continue;
    }
    const std::uint32_t highest = highest_of(classes, count);
    const std::uint32_t longer = highest - std::min(highest, linear);
    if (parameter + longer > 32) return false;
    // All numbers are below (linear + 2 * 2^longer) * 2^parameter. Then rests have at most 31 bits.
    const bool is_small = (linear + (std::uint64_t{2} << longer)) << parameter <= std::uint64_t{1} << 32;
    if (is_fast && is_small && parameter + longer <= kMostEqual) {
      read_rests<true>(reader.rests, classes, parameter, linear, numbers.data() + begin);
    } else if (is_fast && is_small) {
      read_rests<false>(reader.rests, classes, parameter, linear, numbers.data() + begin);
    } else {
      const std::span<const std::uint8_t> part(classes.of, count);
      if (!read_rests_slowly(reader.rests, parameter, linear, part, numbers.data() + begin)) return false;
    }
  }
  return true;
}

bool read_indices(const NumberCode& code, NumberReader& reader, std::uint64_t dim, std::span<std::uint32_t> indices) {
  std::uint32_t gaps[kMostNumbers];
  std::uint64_t next = 0;  // the lowest possible value of the next index
  for (std::size_t begin = 0; begin < indices.size(); begin += kMostNumbers) {
    const std::span<std::uint32_t> part(gaps, std::min(kMostNumbers, indices.size() - begin));
    if (!HWY_NAMESPACE::read_numbers(code, reader, part) || !add_up(part, dim, next, indices.data() + begin))
      return false;
  }
  return true;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(read_numbers);
HWY_EXPORT(read_indices);
}  // namespace

bool NumberReader::is_finished() const noexcept {
  return parameters.rest().is_finished() && classes.rest().is_finished() && rests.rest().is_finished();
}

bool read_numbers(const NumberCode& code, NumberReader& reader, std::span<std::uint32_t> numbers) noexcept {
  return HWY_DYNAMIC_DISPATCH(read_numbers)(code, reader, numbers);
}

bool read_indices(const NumberCode& code, NumberReader& reader, std::uint64_t dim,
                  std::span<std::uint32_t> indices) noexcept {
  return HWY_DYNAMIC_DISPATCH(read_indices)(code, reader, dim, indices);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
