// Decoding any bytes gives a vector or a status: never a crash, never an invalid vector, and never more memory than 64
// bytes for each byte of the frame. In the steady state neither encoding nor decoding allocates.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "effort.h"
#include "unit/bits.h"
#include "unit/frames.h"
#include "unit/memory/counted_memory.h"

namespace sparsewire::frame_safety_test {
namespace {

constexpr std::size_t kSlack = 4096;  // memory that does not depend on the size of the frame
constexpr int kWarmUp = 5;            // rounds until every buffer has been used for the largest vector

void put(Bytes& frame, std::size_t at, std::uint64_t x, std::size_t size) {
  ASSERT_LE(at + size, frame.size());
  for (std::size_t i = 0; i < size; ++i) frame[at + i] = static_cast<std::byte>((x >> (8 * i)) & 0xFFU);
}

std::uint64_t get(const Bytes& frame, std::size_t at, std::size_t size) {
  std::uint64_t x = 0;
  for (std::size_t i = 0; i < size; ++i) x |= std::to_integer<std::uint64_t>(frame.at(at + i)) << (8 * i);
  return x;
}

// Decodes into a new vector; fails the test unless all guarantees for any bytes hold.
DecodeStatus checked(const Bytes& frame) {
  // A buffer of the exact size, so that the address sanitizer detects a read past its end.
  const std::unique_ptr<std::byte, decltype(&std::free)> exact(static_cast<std::byte*>(std::malloc(frame.size())),
                                                               &std::free);
  std::copy(frame.begin(), frame.end(), exact.get());
  SparseVector vector;
  counted_memory.reset();
  const DecodeStatus status = decode({exact.get(), frame.size()}, vector);
  const std::size_t peak = counted_memory.peak;
  EXPECT_LE(peak, 64 * frame.size() + kSlack) << frame.size() << " bytes";
  EXPECT_FALSE(describe(status).empty());
  if (status != DecodeStatus::ok) {
    EXPECT_TRUE(vector.indices.empty() && vector.values.empty());
    return status;
  }
  EXPECT_TRUE(vector.is_valid());
  EXPECT_EQ(vector.dim, get(frame, 8, 8));
  EXPECT_EQ(vector.size(), get(frame, 16, 8));
  for (const float x : vector.values) EXPECT_TRUE(std::isfinite(x));
  const std::optional<reference::Frame> slow = reference::read_frame(frame);
  EXPECT_TRUE(slow.has_value()) << "the reference refuses it";
  if (slow) {
    EXPECT_TRUE(same_bits(slow->vector, vector));
  }
  return status;
}

// Checks that decode() and the reference either both refuse the frame, or read the same vector.
void expect_as_the_reference(const Bytes& frame) {
  const bool taken = checked(frame) == DecodeStatus::ok;
  ASSERT_EQ(taken, reference::read_frame(frame).has_value());
}

struct NamedFrame {
  std::string name;
  Bytes bytes;
};

// Values above a threshold, which packing makes shorter.
SparseVector packable_vector(std::uint64_t dim, std::size_t count) {
  SparseVector vector = vector_of(dim, random_indices(dim, count, kFrameSeed), 1);
  reference::Random random(kFrameSeed);
  for (float& value : vector.values) {
    const float size = 1 + 0.05F * static_cast<float>(random.below(4));
    value = random.below(2) == 0 ? size : -size;
  }
  return vector;
}

// Frames of every codec with every format, of up to a few hundred bytes.
std::vector<NamedFrame> small_frames() {
  std::vector<NamedFrame> frames;
  for (const CodecInfo& codec : codecs()) {
    for (const CodecInfo& format : value_formats()) {
      const std::string spec = std::string(codec.name) + ":values=" + std::string(format.name);
      for (const std::uint32_t count : {0U, 1U, 37U}) {
        const std::vector<Draw::Unit> units = {{4 * count + 3, count}};
        frames.push_back({spec + ", " + std::to_string(count), encoded(spec, drawn_vector(units, 1))});
      }
      frames.push_back({spec + ", full", encoded(spec, full_vector(values_of_kind(1, 21)))});
    }
  }
  for (const char* const format : {"f32", "f16", "bf16", "int8", "int4"}) {
    const std::string spec = std::string("adaptive:pack=yes,values=") + format;
    for (const std::size_t count : {format[0] == 'i' ? 400U : 65U}) {  // integers gain less
      frames.push_back({spec, encoded(spec, packable_vector(count * 9, count))});
      EXPECT_GE(frames.back().bytes[6], std::byte{128}) << spec << " is not packed";
    }
  }
  frames.push_back({"seed of three units", encoded("seed", drawn_vector({{10, 3}, {50, 40}, {7, 0}}, 1))});
  frames.push_back({"runs", encoded("runs", vector_of(400, runs(60, 1, 20, kFrameSeed), 1))});
  return frames;
}

std::vector<NamedFrame> longer_frames() {
  const SparseVector vector = vector_of(9000, random_indices(9000, 1029, kFrameSeed), 1);
  return {{"golomb:values=int2", encoded("golomb:values=int2", vector)},
          {"golomb:values=int8", encoded("golomb:values=int8", vector)},
          {"adaptive:values=int2", encoded("adaptive:values=int2", vector)},
          {"packed", encoded("adaptive:values=int8,pack=yes", packable_vector(9000, 1029))}};
}

std::vector<NamedFrame> all_frames() {
  std::vector<NamedFrame> frames = small_frames();
  for (NamedFrame& frame : longer_frames()) frames.push_back(std::move(frame));
  return frames;
}

TEST(FrameSafety, TheFramesOfThisTestAreValid) {
  for (const NamedFrame& frame : all_frames()) {
    SCOPED_TRACE(frame.name);
    EXPECT_EQ(checked(frame.bytes), DecodeStatus::ok);
  }
}

TEST(FrameSafety, MemoryIsCounted) {
  counted_memory.reset();
  void* const memory =
      ::operator new(1000);  // called directly: a compiler may optimise away the allocation of a vector
  EXPECT_EQ(counted_memory.live.load(), 1000U);
  ::operator delete(memory);
  EXPECT_EQ(counted_memory.live.load(), 0U);
  EXPECT_EQ(counted_memory.peak.load(), 1000U);
  EXPECT_EQ(counted_memory.allocations.load(), 1);
}

TEST(FrameSafety, RefusesEveryTruncatedFrame) {
  for (const NamedFrame& frame : all_frames()) {
    SCOPED_TRACE(frame.name);
    for (std::size_t size = 0; size < frame.bytes.size(); ++size) {
      SCOPED_TRACE(size);
      const Bytes cut(frame.bytes.begin(), frame.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_EQ(checked(cut), size < 28 ? DecodeStatus::too_short : DecodeStatus::bad_checksum);
    }
  }
}

TEST(FrameSafety, RefusesEveryFrameWithBytesAppended) {
  for (const NamedFrame& frame : all_frames()) {
    SCOPED_TRACE(frame.name);
    Bytes longer = frame.bytes;
    for (int i = 0; i < 9; ++i) {
      longer.push_back(std::byte{0});
      ASSERT_NE(checked(longer), DecodeStatus::ok);
      ASSERT_NE(checked(reference::with_checksum(longer)), DecodeStatus::ok);
    }
  }
}

TEST(FrameSafety, RefusesEveryFrameWithOneBitFlipped) {
  for (const NamedFrame& frame : all_frames()) {
    SCOPED_TRACE(frame.name);
    Bytes flipped = frame.bytes;
    for (std::size_t bit = 0; bit < 8 * flipped.size(); ++bit) {
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_NE(checked(flipped), DecodeStatus::ok) << "bit " << bit;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
  }
}

TEST(FrameSafety, NamesWhatIsWrongWithAHeader) {
  const Bytes good = encoded("golomb", vector_of(1000, every_nth(50, 3, 4), 1));
  const auto status_with = [&](std::size_t at, std::uint64_t x, std::size_t size) {
    Bytes frame = good;
    put(frame, at, x, size);
    return checked(reference::with_checksum(frame));
  };
  EXPECT_EQ(status_with(0, 'X', 1), DecodeStatus::not_a_frame);
  EXPECT_EQ(status_with(3, 'r', 1), DecodeStatus::not_a_frame);
  EXPECT_EQ(status_with(4, 0, 1), DecodeStatus::unknown_version);
  EXPECT_EQ(status_with(4, 2, 1), DecodeStatus::unknown_version);
  EXPECT_EQ(status_with(5, 7, 1), DecodeStatus::unknown_codec);
  EXPECT_EQ(status_with(5, 255, 1), DecodeStatus::unknown_codec);
  EXPECT_EQ(status_with(6, 6, 1), DecodeStatus::unknown_codec);
  EXPECT_EQ(status_with(7, 1, 1), DecodeStatus::bad_header);
  EXPECT_EQ(status_with(8, std::uint64_t{1} << 32U, 8), DecodeStatus::bad_header);
  EXPECT_EQ(status_with(8, ~std::uint64_t{0}, 8), DecodeStatus::bad_header);
  EXPECT_EQ(status_with(16, 1001, 8), DecodeStatus::bad_header);
  EXPECT_EQ(status_with(16, ~std::uint64_t{0}, 8), DecodeStatus::bad_header);
  EXPECT_EQ(status_with(16, 1000, 8), DecodeStatus::too_short);
  EXPECT_EQ(status_with(24, 0x7F800000, 4), DecodeStatus::bad_values);
  EXPECT_EQ(status_with(24, 0xFFC00000, 4), DecodeStatus::bad_values);
  EXPECT_EQ(status_with(24 + 200, 0, 4), DecodeStatus::bad_indices) << "divisor 0";
  EXPECT_EQ(status_with(8, 199, 8), DecodeStatus::bad_indices) << "the last index is 199";
  EXPECT_EQ(status_with(8, 200, 8), DecodeStatus::ok);
  std::set<std::string_view> words;
  for (int status = 0; status <= static_cast<int>(DecodeStatus::bad_indices); ++status) {
    words.insert(describe(static_cast<DecodeStatus>(status)));
  }
  EXPECT_EQ(words.size(), 9U) << "each status has its own description";
}

TEST(FrameSafety, AgreesWithTheReferenceOnEveryBitFlippedUnderAGoodChecksum) {
  for (const NamedFrame& frame : small_frames()) {
    SCOPED_TRACE(frame.name);
    for (std::size_t bit = 0; bit + 32 < 8 * frame.bytes.size(); ++bit) {
      SCOPED_TRACE(bit);
      Bytes flipped = frame.bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_NO_FATAL_FAILURE(expect_as_the_reference(reference::with_checksum(flipped)));
    }
  }
}

TEST(FrameSafety, AgreesWithTheReferenceOnEveryCutUnderAGoodChecksum) {
  for (const NamedFrame& frame : all_frames()) {
    SCOPED_TRACE(frame.name);
    for (std::size_t size = 4; size < frame.bytes.size(); ++size) {
      SCOPED_TRACE(size);
      const Bytes cut(frame.bytes.begin(), frame.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_NO_FATAL_FAILURE(expect_as_the_reference(reference::with_checksum(cut)));
    }
  }
}

// Changes, inserts or removes some bytes.
void edit(Bytes& frame, reference::Random& random) {
  const std::size_t at = random.below(frame.size());
  const std::uint64_t x = random.bits();
  switch (random.below(6)) {
    case 0:
      frame[at] = static_cast<std::byte>(x & 0xFFU);
      break;
    case 1:
      for (std::size_t i = at; i < frame.size() && i < at + 4; ++i) frame[i] = std::byte{0xFF};
      break;
    case 2:
      for (std::size_t i = at; i < frame.size() && i < at + 4; ++i) frame[i] = std::byte{0};
      break;
    case 3:
      frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(x & 0xFFU));
      break;
    case 4:
      if (frame.size() > 28) frame.erase(frame.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    default:
      frame[std::min<std::size_t>(5 + x % 19, frame.size() - 1)] ^= static_cast<std::byte>(1U << (x >> 61U));
  }
}

TEST(FrameSafety, AgreesWithTheReferenceOnRandomEditsUnderAGoodChecksum) {
  reference::Random random(kFrameSeed);
  int accepted = 0;
  for (const NamedFrame& frame : all_frames()) {
    for (int round = 0; round < (kSlowBuild ? 60 : 200); ++round) {
      SCOPED_TRACE(::testing::Message() << frame.name << ", round " << round << ", seed " << kFrameSeed);
      Bytes bytes = frame.bytes;
      for (std::size_t edits = 1 + random.below(4); edits > 0; --edits) edit(bytes, random);
      bytes = reference::with_checksum(bytes);
      ASSERT_NO_FATAL_FAILURE(expect_as_the_reference(bytes));
      if (checked(bytes) == DecodeStatus::ok) ++accepted;
    }
  }
  EXPECT_GT(accepted, 100) << "a frame with another value is still valid";
}

// A frame of `size` bytes with that header and a right checksum; the rest is filled with `fill`.
Bytes frame_with_header(std::size_t size, int index_codec, int value_codec, std::uint64_t dim, std::uint64_t count,
                        unsigned fill) {
  Bytes frame(size, static_cast<std::byte>(fill));
  std::memcpy(frame.data(), "SWFR", 4);
  put(frame, 4, 1, 1);
  put(frame, 5, static_cast<std::uint64_t>(index_codec), 1);
  put(frame, 6, static_cast<std::uint64_t>(value_codec), 1);
  put(frame, 7, 0, 1);
  put(frame, 8, dim, 8);
  put(frame, 16, count, 8);
  return reference::with_checksum(frame);
}

TEST(FrameSafety, ChecksTheHeaderBeforeItAllocates) {
  const std::vector<std::uint64_t> numbers = {0,
                                              1,
                                              2,
                                              16,
                                              1023,
                                              1024,
                                              1U << 20U,
                                              0x3FFFFFFFU,
                                              0x7FFFFFFFU,
                                              0x80000000U,
                                              0xFFFFFFFEU,
                                              0xFFFFFFFFU,
                                              std::uint64_t{1} << 32U,
                                              std::uint64_t{1} << 62U,
                                              ~std::uint64_t{0}};
  const std::vector<std::size_t> sizes =
      kSlowBuild ? std::vector<std::size_t>{28, 36, 61, 400} : std::vector<std::size_t>{28, 32, 36, 40, 61, 100, 400};
  const std::vector<unsigned> fills =
      kSlowBuild ? std::vector<unsigned>{0x00, 0xFF} : std::vector<unsigned>{0x00, 0x01, 0x10, 0xFF};
  for (const int index_codec : {0, 1, 2, 3, 4, 5, 6, 7}) {
    for (const int value_codec : {0, 1, 2, 3, 4, 5, 6, 128, 130, 131, 133}) {
      for (const std::uint64_t dim : numbers) {
        for (const std::uint64_t count : numbers) {
          for (const std::size_t size : sizes) {
            for (const unsigned fill : fills) {
              const Bytes frame = frame_with_header(size, index_codec, value_codec, dim, count, fill);
              SCOPED_TRACE(::testing::Message() << "codecs " << index_codec << " and " << value_codec << ", dim " << dim
                                                << ", count " << count << ", size " << size << ", fill " << fill);
              ASSERT_NO_FATAL_FAILURE(expect_as_the_reference(frame));
            }
          }
        }
      }
    }
  }
}

TEST(FrameSafety, ChecksTheLaneLengths) {
  const Bytes good = longer_frames()[0].bytes;
  const std::size_t lanes = good.size() - 4 - reference::read_frame(good)->index_bytes + 4;  // after the divisor
  const std::uint64_t length = get(good, lanes, 4);
  const std::uint64_t streams = good.size() - 4 - (lanes + 12);
  const std::vector<std::uint64_t> lengths = {0,          1,           length - 1,  length + 1,  streams / 2 + 1,
                                              streams,    streams + 1, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU - streams,
                                              0xFFFFFFFFU};
  for (const std::uint64_t a : lengths) {
    for (const std::uint64_t b : lengths) {
      for (const std::uint64_t c : lengths) {
        Bytes frame = good;
        put(frame, lanes, a, 4);
        put(frame, lanes + 4, b, 4);
        put(frame, lanes + 8, c, 4);
        ASSERT_EQ(checked(reference::with_checksum(frame)), DecodeStatus::bad_indices) << a << ", " << b << ", " << c;
      }
    }
  }
}

TEST(FrameSafety, ChecksTheDivisors) {
  for (const std::size_t count : {3U, 1500U}) {
    for (const reference::IndexCodec codec : {reference::IndexCodec::golomb, reference::IndexCodec::runs}) {
      const SparseVector vector = vector_of(20'000, random_indices(20'000, count, kFrameSeed), 1);
      const Bytes good = reference::write_frame(vector, {.indices = codec, .divisor = 9, .divisor_of_length = 2});
      const std::size_t at = good.size() - 4 - reference::read_frame(good)->index_bytes;
      for (std::size_t field = 0; field < (codec == reference::IndexCodec::runs ? 12U : 4U); field += 4) {
        for (const std::uint64_t x : {0U, 1U, 2U, 8U, 10U, 0x7FFFFFFFU, 0x80000000U, 0x80000001U, 0xFFFFFFFFU}) {
          SCOPED_TRACE(::testing::Message() << "count " << count << ", field " << field << ", " << x);
          Bytes frame = good;
          put(frame, at + field, x, 4);
          ASSERT_NO_FATAL_FAILURE(expect_as_the_reference(reference::with_checksum(frame)));
        }
      }
    }
  }
}

// Four lanes that contain only zeros, for each divisor and each start of a lane: a decoder that reads several codes
// before it checks its position must not read past the frame. The address sanitizer detects it if it does.
TEST(FrameSafety, DoesNotReadZerosPastTheEnd) {
  for (const std::size_t streams : {0U, 100U, 150U, 200U, 300U}) {
    for (std::uint32_t bit = 0; bit < 32; ++bit) {
      for (const std::size_t first : {std::size_t{0}, streams / 3, streams > 90 ? streams - 90 : 0, streams}) {
        for (std::size_t near = first; near < std::min(first + 20, streams + 1); ++near) {
          for (const unsigned fill : {0x00U, 0x80U}) {
            constexpr std::size_t kIndices = 24 + 4 + 4 * 5 + 320;  // after 1280 values of two bits in five blocks
            Bytes frame = frame_with_header(kIndices + 16 + streams + 4, 1, 5, kLargestDim, 1280, 0);
            put(frame, 24, 256, 4);
            put(frame, kIndices, 1U << bit, 4);
            put(frame, kIndices + 4, near, 4);
            std::fill(frame.begin() + kIndices + 16, frame.end(), static_cast<std::byte>(fill));
            ASSERT_EQ(checked(reference::with_checksum(frame)), DecodeStatus::bad_indices)
                << streams << " bytes, divisor 2^" << bit << ", first lane " << near;
          }
        }
      }
    }
  }
}

// Sums of sizes and of k that are right only modulo 2^32 or 2^64.
TEST(FrameSafety, ChecksTheUnits) {
  const SparseVector vector = drawn_vector({{100, 10}, {200, 20}, {50, 50}}, 1);
  const Bytes good = encoded("seed", vector);
  const std::size_t units = good.size() - 4 - reference::read_frame(good)->index_bytes + 21;
  ASSERT_EQ(get(good, units, 4), 3U);
  const auto expect = [&](std::vector<std::uint32_t> pairs) {
    Bytes frame = good;
    for (std::size_t i = 0; i < pairs.size(); ++i) put(frame, units + 4 + 4 * i, pairs[i], 4);
    EXPECT_EQ(checked(reference::with_checksum(frame)), DecodeStatus::bad_indices);
  };
  expect({0x80000000U, 10, 0x80000000U, 20, 350, 50});
  expect({100, 0x80000000U, 200, 0x80000000U, 50, 80});
  expect({0xFFFFFFFFU, 10, 251, 20, 100, 50});
  expect({100, 30, 200, 1, 50, 50});
  expect({100, 101, 200, 0, 50, 0});
  expect({100, 10, 200, 10, 50, 60});
  expect({0, 30, 300, 0, 50, 50});
  expect({100, 20, 200, 10, 50, 50});
  for (const std::uint64_t number : {0U, 1U, 2U, 4U, 0x20000000U, 0x20000003U, 0x80000003U, 0xFFFFFFFFU}) {
    Bytes frame = good;
    put(frame, units, number, 4);
    EXPECT_EQ(checked(reference::with_checksum(frame)), DecodeStatus::bad_indices) << number;
  }
}

TEST(FrameSafety, ChecksTheNumberOfRuns) {
  const SparseVector vector = vector_of(1000, runs(100, 1, 10, kFrameSeed), 1);
  const Bytes good = encoded("runs", vector);
  const std::size_t at = good.size() - 4 - reference::read_frame(good)->index_bytes + 8;
  const std::uint64_t number = get(good, at, 4);
  for (const std::uint64_t x :
       {std::uint64_t{0}, number - 1, number + 1, std::uint64_t{100}, std::uint64_t{101}, std::uint64_t{0xFFFFFFFF}}) {
    Bytes frame = good;
    put(frame, at, x, 4);
    EXPECT_EQ(checked(reference::with_checksum(frame)), DecodeStatus::bad_indices) << x;
  }
}

TEST(FrameSafety, AllocatesNoMoreThanAValidFrameNeeds) {
  for (const CodecInfo& codec : codecs()) {
    for (const CodecInfo& format : value_formats()) {
      const std::string spec = std::string(codec.name) + ":values=" + std::string(format.name);
      SCOPED_TRACE(spec);
      EXPECT_EQ(checked(encoded(spec, drawn_vector({{25'000, 20'000}}, 1))), DecodeStatus::ok);
      EXPECT_EQ(checked(encoded(spec, drawn_vector({{1'000'000, 20'000}}, 1))), DecodeStatus::ok);
      EXPECT_EQ(checked(encoded(spec, full_vector(values_of_kind(1, 50'000)))), DecodeStatus::ok);
    }
  }
}

TEST(FrameAllocations, AreNoneInTheSteadyState) {
  for (const CodecInfo& name : codecs()) {
    for (const CodecInfo& format : value_formats()) {
      const std::string spec = std::string(name.name) + ":values=" + std::string(format.name);
      SCOPED_TRACE(spec);
      std::vector<SparseVector> vectors = {drawn_vector({{50'000, 3000}}, 1, 1), drawn_vector({{50'000, 3000}}, 1, 2),
                                           drawn_vector({{40'000, 2500}}, 1, 3), drawn_vector({{4000, 3000}}, 1, 4),
                                           full_vector(values_of_kind(1, 3000))};
      if (name.name != "seed") {
        for (SparseVector& vector : vectors) vector.draw.units.clear();
        vectors.push_back(vector_of(100'000, runs(3000, 1, 30, kFrameSeed), 1));
      }
      Codec codec(spec);
      Bytes frame;
      std::vector<float> received;
      SparseVector decoded;
      long encoding = 0;
      long decoding = 0;
      for (int round = 0; round < kWarmUp + 3; ++round) {
        for (const SparseVector& vector : vectors) {
          counted_memory.reset();
          codec.encode(vector, frame, &received);
          if (round >= kWarmUp) encoding += counted_memory.allocations;
          counted_memory.reset();
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          if (round >= kWarmUp) decoding += counted_memory.allocations;
        }
      }
      EXPECT_EQ(encoding, 0);
      if (name.name != "seed") {
        EXPECT_EQ(decoding, 0);
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::frame_safety_test
