#include "kernels/random.h"

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef SPARSEWIRE_RANDOM_ONCE
#define SPARSEWIRE_RANDOM_ONCE
namespace sparsewire::kernels {
namespace {

inline std::uint32_t position_of(std::uint32_t low, std::uint32_t high, std::size_t n) noexcept {
  return static_cast<std::uint32_t>((high * std::uint64_t{n} + (low * std::uint64_t{n} >> 32)) >> 32);
}

inline std::uint32_t position_at(const Stream& stream, std::uint64_t draw, std::size_t n) noexcept {
  const PhiloxBlock block = stream.block(static_cast<std::uint32_t>(draw / 2));
  return draw % 2 == 0 ? position_of(block[0], block[1], n) : position_of(block[2], block[3], n);
}

}  // namespace
}  // namespace sparsewire::kernels
#endif  // SPARSEWIRE_RANDOM_ONCE

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Longs = hn::CappedTag<std::uint64_t, 8>;

#if HWY_TARGET == HWY_SCALAR  // has no MulEven
constexpr std::size_t kWidth = 1;
struct Blocks {
  PhiloxBlock words;
};
HWY_INLINE Blocks blocks_at(const Stream& stream, const std::uint32_t* numbers) { return {stream.block(*numbers)}; }
HWY_INLINE void store_positions(const Blocks& blocks, std::size_t n, std::uint32_t* positions) {
  positions[0] = position_of(blocks.words[0], blocks.words[1], n);
  positions[1] = position_of(blocks.words[2], blocks.words[3], n);
}
HWY_INLINE void store_hashes(const Blocks& blocks, std::uint32_t* hashes) { *hashes = blocks.words[0]; }
#else
constexpr Longs kLongs;
constexpr hn::Repartition<std::uint32_t, Longs> kInts;
constexpr hn::Rebind<std::uint32_t, Longs> kHalfInts;
constexpr std::size_t kWidth = hn::MaxLanes(kLongs);
using Long = hn::Vec<Longs>;

// One Philox block for each 64-bit lane; each word is in the low half of the lane, and the high halves are arbitrary.
struct Blocks {
  Long word0, word1, word2, word3;
};

HWY_INLINE Long multiply(Long a, std::uint32_t b) { return hn::MulEven(hn::BitCast(kInts, a), hn::Set(kInts, b)); }

HWY_INLINE Blocks blocks_at(const Stream& stream, const std::uint32_t* numbers) {
  const PhiloxBlock counter = stream.counter(0);
  Long key0 = hn::Set(kLongs, stream.key()[0]);
  Long key1 = hn::Set(kLongs, stream.key()[1]);
  Blocks blocks{hn::PromoteTo(kLongs, hn::LoadU(kHalfInts, numbers)), hn::Set(kLongs, counter[1]),
                hn::Set(kLongs, counter[2]), hn::Set(kLongs, counter[3])};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Long p0 = multiply(blocks.word0, kPhiloxMultipliers[0]);
    const Long p1 = multiply(blocks.word2, kPhiloxMultipliers[1]);
    blocks = {hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), blocks.word1), key0), p1,
              hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), blocks.word3), key1), p0};
    key0 = hn::Add(key0, hn::Set(kLongs, kPhiloxKeySteps[0]));
    key1 = hn::Add(key1, hn::Set(kLongs, kPhiloxKeySteps[1]));
  }
  return blocks;
}

HWY_INLINE Long positions_of(Long low, Long high, std::size_t n) {
  const auto factor = static_cast<std::uint32_t>(n);
  return hn::ShiftRight<32>(hn::Add(multiply(high, factor), hn::ShiftRight<32>(multiply(low, factor))));
}

HWY_INLINE void store_positions(const Blocks& blocks, std::size_t n, std::uint32_t* positions) {
  const Long even = positions_of(blocks.word0, blocks.word1, n);
  const Long odd = positions_of(blocks.word2, blocks.word3, n);
  hn::StoreU(hn::BitCast(kInts, hn::Or(even, hn::ShiftLeft<32>(odd))), kInts, positions);
}

HWY_INLINE void store_hashes(const Blocks& blocks, std::uint32_t* hashes) {
  hn::StoreU(hn::TruncateTo(kHalfInts, blocks.word0), kHalfInts, hashes);
}
#endif

void draw_positions(const Stream& stream, std::uint64_t first, std::size_t count, std::size_t n,
                    std::uint32_t* positions) {
  std::size_t i = 0;
  if (first % 2 != 0 && count > 0) positions[i++] = position_at(stream, first, n);
  std::uint32_t numbers[kWidth];
  for (std::size_t b = 0; b < kWidth; ++b) numbers[b] = static_cast<std::uint32_t>((first + i) / 2 + b);
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    store_positions(blocks_at(stream, numbers), n, positions + i);
    for (std::size_t b = 0; b < kWidth; ++b) numbers[b] += static_cast<std::uint32_t>(kWidth);
  }
  for (; i < count; ++i) positions[i] = position_at(stream, first + i, n);
}

void hash(const Stream& stream, const std::uint32_t* numbers, std::size_t count, std::uint32_t* hashes) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store_hashes(blocks_at(stream, numbers + i), hashes + i);
  for (; i < count; ++i) hashes[i] = stream.block(numbers[i])[0];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(draw_positions);
HWY_EXPORT(hash);
}  // namespace

void draw_positions(const Stream& stream, std::uint64_t first, std::size_t count, std::size_t n,
                    std::uint32_t* positions) noexcept {
  HWY_DYNAMIC_DISPATCH(draw_positions)(stream, first, count, n, positions);
}

void hash(const Stream& stream, const std::uint32_t* numbers, std::size_t count, std::uint32_t* hashes) noexcept {
  HWY_DYNAMIC_DISPATCH(hash)(stream, numbers, count, hashes);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
