// For every index codec and every value format: decoding gives what was encoded, with the rounded values that
// `received` announced, and the slow reader written from docs/wire_format.md reads the same.
#include "sparsewire/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <tuple>

#include "reference/half.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "unit/bits.h"
#include "unit/frames.h"
#include "unit/sifters.h"
#include "unit/specs.h"
#include "unit/walk.h"

namespace sparsewire::codec_test {
namespace {

std::vector<std::string> names_of(std::span<const CodecInfo> infos) {
  std::vector<std::string> names;
  for (const CodecInfo& info : infos) names.emplace_back(info.name);
  return names;
}

bool has_blocks(const std::string& values) { return values.starts_with("int"); }

// The values that must be decoded; only for formats without a scale.
Numbers rounded(const Numbers& values, const std::string& format) {
  Numbers result = values;
  for (float& x : result) {
    if (format == "f16") x = reference::from_f16(reference::to_f16(x));
    if (format == "bf16") x = reference::from_bf16(reference::to_bf16(x));
  }
  return result;
}

SparseVector with_values(const SparseVector& vector, const Numbers& values) {
  SparseVector result = vector;
  result.values = values;
  return result;
}

SparseVector with_draw(const SparseVector& vector, const Draw& draw) {
  SparseVector result = vector;
  result.draw = draw;
  return result;
}

// `auto` sends a vector that lists all its entries as a full one.
SparseVector listed_as(const SparseVector& expected, SparseVector vector) {
  if (!vector.is_full() || expected.is_full()) return vector;
  for (std::uint32_t i = 0; i < vector.size(); ++i) vector.indices.push_back(i);
  return vector;
}

// Encodes, decodes, and reads with the reference: all must agree, and the values must be rounded as the format demands.
void expect_round_trip(Codec& codec, const std::string& format, const SparseVector& vector) {
  Bytes frame;
  Numbers received;
  codec.encode(vector, frame, &received);
  ASSERT_EQ(received.size(), vector.size());
  if (!has_blocks(format)) {
    ASSERT_TRUE(same_bits(rounded(vector.values, format), received));
  }
  const SparseVector expected = with_values(vector, received);

  SparseVector decoded;
  const DecodeStatus status = decode(frame, decoded);
  ASSERT_EQ(status, DecodeStatus::ok) << describe(status);
  ASSERT_TRUE(decoded.is_valid());
  ASSERT_TRUE(same_bits(expected, listed_as(expected, decoded)));

  const std::optional<reference::Frame> slow = reference::read_frame(frame);
  ASSERT_TRUE(slow.has_value()) << "the reference refuses it";
  ASSERT_TRUE(same_bits(expected, listed_as(expected, slow->vector)));

  FrameInfo info;
  ASSERT_EQ(inspect(frame, info), DecodeStatus::ok);
  EXPECT_EQ(info.version, 1);
  EXPECT_EQ(info.dim, vector.dim);
  EXPECT_EQ(info.count, vector.size());
  EXPECT_EQ(info.frame_bytes, frame.size());
  EXPECT_EQ(info.header_bytes, 28U);
  EXPECT_EQ(info.value_bytes, slow->value_bytes);
  EXPECT_EQ(info.index_bytes, slow->index_bytes);
  if (!has_blocks(format) && !decoded.is_full()) {
    EXPECT_EQ(encoded(info.codec, with_draw(decoded, vector.draw)), frame) << info.codec << " gives the same frame";
  }
}

class EveryCodec : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static std::string name() { return std::get<0>(GetParam()); }
  static std::string format() { return std::get<1>(GetParam()); }
  static std::string spec() { return name() + ":values=" + format(); }
};

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec,
                         ::testing::Combine(::testing::ValuesIn(names_of(codecs())),
                                            ::testing::ValuesIn(names_of(value_formats()))),
                         [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param); });

TEST(Codecs, AreNamedOnceAndTheirExamplesWork) {
  std::set<std::string_view> names;
  for (const CodecInfo& info : codecs()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.example.substr(0, info.name.size()), info.name);
    EXPECT_FALSE(info.summary.empty());
    EXPECT_NO_THROW(Codec(info.example));
  }
  EXPECT_EQ(codecs()[0].name, "auto");
  EXPECT_EQ(names, (std::set<std::string_view>{"auto", "golomb", "bitmap", "raw32", "seed", "runs"}));
  names.clear();
  for (const CodecInfo& info : value_formats()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.summary.empty());
    EXPECT_NO_THROW(Codec(info.example));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"f32", "f16", "bf16", "int8", "int4", "int2"}));
}

TEST_P(EveryCodec, DecodesWhatItEncodedAtEveryLengthAndShape) {
  Codec codec(spec());
  std::size_t kind = 0;
  for (const std::size_t count : frame_lengths()) {
    for (const NamedVector& each : vectors_for(name(), count, kind)) {
      SCOPED_TRACE(each.name);
      ASSERT_NO_FATAL_FAILURE(expect_round_trip(codec, format(), each.vector));
    }
    kind += 5;
  }
}

TEST_P(EveryCodec, DecodesWhatItEncodedForEveryKindOfValue) {
  for (const char* block : {"", "block=16", "block=17", "block=65536"}) {
    if (*block != 0 && !has_blocks(format())) continue;
    Codec codec(*block == 0 ? spec() : with(spec(), block));
    for (std::size_t kind = 0; kind < value_kinds(); ++kind) {
      for (const std::size_t count : {31U, 257U, 1100U}) {
        SCOPED_TRACE(kind_name(kind) + ", count " + std::to_string(count) + ", " + block);
        const auto k = static_cast<std::uint32_t>(count);
        const SparseVector vector = name() == "seed" ? drawn_vector({{9 * k, k}}, kind)
                                                     : vector_of(9 * k, random_indices(9 * k, count, kFrameSeed), kind);
        ASSERT_NO_FATAL_FAILURE(expect_round_trip(codec, format(), vector));
      }
    }
  }
}

TEST_P(EveryCodec, DecodesWhatItEncodedWhenItIsLarge) {
  constexpr std::uint32_t kCount = kSlowBuild ? 20011 : 100003;
  constexpr std::uint32_t kDim = 30 * kCount;
  Codec codec(spec());
  std::vector<SparseVector> vectors;
  if (name() == "seed") {
    vectors.push_back(drawn_vector({{kDim, kCount}}, 1));
  } else {
    vectors.push_back(vector_of(kDim, random_indices(kDim, kCount, kFrameSeed), 1));
    const Indices in_runs = runs(kCount, 1, 100, kFrameSeed);
    vectors.push_back(vector_of(in_runs.back() + 12345, in_runs, 2));
  }
  for (const SparseVector& vector : vectors) ASSERT_NO_FATAL_FAILURE(expect_round_trip(codec, format(), vector));
}

// Gaps around 2^24 and 2^31, the limits of exact floats and signed integers, among small gaps that make the divisor
// small.
TEST_P(EveryCodec, DecodesWhatItEncodedWithOneHugeGapAmongManySmallOnes) {
  if (name() == "seed" || name() == "bitmap" || format() != "int2") GTEST_SKIP() << "is about gaps";
  Codec codec(spec());
  for (const std::size_t count : {700U, 5000U, 300'000U}) {
    for (const std::uint32_t gap : {(1U << 24U) - 1, 1U << 24U, (1U << 24U) + 1, (1U << 31U) - 2, (1U << 31U) - 1,
                                    1U << 31U, (1U << 31U) + 1, 4'294'000'000U}) {
      SCOPED_TRACE(::testing::Message() << "gap " << gap << ", count " << count);
      Indices indices = every_nth(count, 0, 1);
      for (std::size_t i = count / 2; i < count; ++i) indices[i] += gap;
      SparseVector vector;
      vector.dim = kLargestDim;
      vector.values.assign(count, 1.5F);
      vector.indices = std::move(indices);
      Bytes frame;
      codec.encode(vector, frame);
      SparseVector decoded;
      ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
      ASSERT_TRUE(same_bits(vector, decoded));
    }
  }
}

TEST(Codec, SendsAVectorThatListsAllItsEntriesWithoutIndicesUnderAuto) {
  const SparseVector listed{4, {0, 1, 2, 3}, {1, -2, 3, 4}, {}};
  FrameInfo info;
  ASSERT_EQ(inspect(encoded("auto", listed), info), DecodeStatus::ok);
  EXPECT_EQ(info.codec, "full:values=f32");
  SparseVector decoded;
  ASSERT_EQ(decode(encoded("auto", listed), decoded), DecodeStatus::ok);
  EXPECT_EQ(decoded, listed);
  EXPECT_NE(decoded, (SparseVector{4, {0, 1, 2}, {1, -2, 3}, {}}));
  ASSERT_EQ(inspect(encoded("raw32", listed), info), DecodeStatus::ok);
  EXPECT_EQ(info.codec, "raw32:values=f32");
}

SparseVector sent_by(const std::string& spec, SifterContext context) {
  const std::size_t n = context.layout.dim();
  Sifter sifter(spec, "ef", std::move(context));
  SparseVector sent;
  sifter.sift(Gradient(reference::input("normal").make(n, 0, 5)), sent);
  return sent;
}

// The sums for the two magnitudes are rounded: the lower mean once came out above the higher one.
TEST(Int2, EncodesMagnitudesThatAreAlmostEqual) {
  for (const std::size_t count : {256U, 1024U, 4096U}) {
    for (std::size_t odd = 0; odd < count; odd += count / 256) {
      Numbers values(count, 0x1.06fff4p+0F);
      values[odd] = std::nextafter(values[odd], 0.0F);
      SparseVector decoded;
      ASSERT_EQ(decode(encoded("auto:values=int2,block=" + std::to_string(count), full_vector(values)), decoded),
                DecodeStatus::ok)
          << odd << " of " << count;
    }
  }
}

// The quotient is -78.5000024. Rounded to f32 first it would be a tie, and become -78.
TEST(Int8, RoundsTheQuotientOnce) {
  Numbers values(16, 0.0F);
  values[0] = 0.031354159F * 127;
  values[1] = -2.461301565F;
  Numbers received;
  encoded("raw32:values=int8,block=16", full_vector(values), &received);
  const float scale = received[0] / 127;
  const double error = std::abs(static_cast<double>(values[1]) - static_cast<double>(received[1]));
  EXPECT_LE(error, static_cast<double>(scale) / 2 * 1.0000001) << received[1];
}

TEST(Int4, ChoosesTheSameCodesAtEveryScale) {
  const Numbers values = values_of_kind(1, 256);
  Numbers received;
  encoded("auto:values=int4", full_vector(values), &received);
  for (const float factor : {0x1p-90F, 0x1p-60F, 0x1p60F, 0x1p90F}) {
    Numbers scaled = values;
    for (float& value : scaled) value *= factor;
    Numbers received_scaled;
    encoded("auto:values=int4", full_vector(scaled), &received_scaled);
    for (float& value : received_scaled) value /= factor;
    EXPECT_EQ(received_scaled, received) << factor;
  }
}

// Codes that just fit into the window of the fast path, and codes that do not, starting at every bit of a byte.
TEST(Golomb, ReadsTheLongestCodesInTheMiddleOfMany) {
  constexpr std::size_t kCount = 1100;
  for (const std::uint32_t divisor : {(1U << 24) + 1, (1U << 25) - 1, 1U << 25, (1U << 25) + 1, (1U << 26) + 1}) {
    for (const std::uint32_t quotient : {22U, 23U, 24U, 30U, 31U, 32U, 33U, 56U, 57U}) {
      for (std::size_t place = 401; place < 433; place += 4) {
        for (const std::uint32_t odd : {0U, divisor - 1}) {  // one code in the same stream that is a bit longer
          const std::uint64_t gap = std::uint64_t{quotient} * divisor + divisor - 1;
          if (gap + odd + kCount >= 0xFFFFFFFF) continue;
          Indices indices = every_nth(kCount, 0, 1);
          for (std::size_t i = 101; i < kCount; ++i) indices[i] += odd;
          for (std::size_t i = place; i < kCount; ++i) indices[i] += static_cast<std::uint32_t>(gap);
          const SparseVector vector = vector_of(std::uint64_t{indices.back()} + 1, indices, 1);
          SparseVector decoded;
          ASSERT_EQ(
              decode(reference::write_frame(vector, {.indices = reference::IndexCodec::golomb, .divisor = divisor}),
                     decoded),
              DecodeStatus::ok);
          ASSERT_EQ(decoded, vector) << divisor << " * " << quotient << " at " << place << " after " << odd;
        }
      }
    }
  }
}

TEST(Decode, ReplacesThePreviousVectorCompletely) {
  const SparseVector plain{9, {1, 4}, {1, 2}, {}};
  SparseVector vector = sent_by("randomk:ratio=0.1", {.layout = 1000});
  ASSERT_FALSE(vector.draw.units.empty());
  ASSERT_EQ(decode(encoded("golomb", plain), vector), DecodeStatus::ok);
  EXPECT_TRUE(vector.draw.units.empty());
  EXPECT_EQ(vector, plain);

  vector = sent_by("randomk:ratio=0.1", {.layout = 1000});
  EXPECT_NE(decode(Bytes(40), vector), DecodeStatus::ok);
  EXPECT_EQ(vector.dim, 0U);
  EXPECT_TRUE(vector.indices.empty() && vector.values.empty() && vector.draw.units.empty());
}

TEST_P(EveryCodec, RefusesVectorsThatAreNotValid) {
  Codec codec(spec());
  std::vector<std::byte> frame;
  const SparseVector turned{9, {2, 1}, {1, 1}, {}};
  const SparseVector twice{9, {1, 1}, {1, 1}, {}};
  const SparseVector beyond{9, {1, 9}, {1, 1}, {}};
  const SparseVector torn{9, {1}, {1, 2}, {}};
  const SparseVector more{9, {1, 2, 3}, {1, 2}, {}};
  for (const SparseVector* const vector : {&turned, &twice, &beyond, &torn, &more}) {
    EXPECT_THROW(codec.encode(*vector, frame), UsageError);
  }
}

TEST_P(EveryCodec, SendsAFullVectorWithoutIndices) {
  Codec codec(spec());
  for (const std::size_t count : frame_lengths()) {
    if (count == 0) continue;
    for (const std::size_t kind : {std::size_t{0}, count}) {
      SCOPED_TRACE(kind_name(kind) + ", count " + std::to_string(count));
      const SparseVector vector = full_vector(values_of_kind(kind, count));
      ASSERT_NO_FATAL_FAILURE(expect_round_trip(codec, format(), vector));
      FrameInfo info;
      ASSERT_EQ(inspect(encoded(spec(), vector), info), DecodeStatus::ok);
      EXPECT_EQ(info.index_bytes, 0U);
    }
  }
}

TEST_P(EveryCodec, CanBeUsedForVectorsOfAllSizesInAnyOrder) {
  Codec codec(spec());
  Bytes frame;
  Numbers received;
  SparseVector decoded;
  for (const std::size_t count : {4099U, 3U, 1025U, 0U, 16U, 2000U, 1U, 1024U}) {
    SCOPED_TRACE(count);
    for (const NamedVector& each : vectors_for(name(), count, count)) {
      SCOPED_TRACE(each.name);
      codec.encode(each.vector, frame, &received);
      Numbers received_by_fresh;
      ASSERT_EQ(frame, encoded(spec(), each.vector, &received_by_fresh));
      ASSERT_TRUE(same_bits(received_by_fresh, received));
      ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
      ASSERT_TRUE(same_bits(with_values(each.vector, received), listed_as(each.vector, decoded)));
    }
  }
}

TEST_P(EveryCodec, MakesTheSameFrameAtEverySimdLevelAndWithoutReceived) {
  for (const std::size_t count : {17U, 257U, 1027U, 4099U}) {
    for (const NamedVector& each : vectors_for(name(), count, count + 1)) {
      SCOPED_TRACE(each.name);
      Numbers received;
      const Bytes frame = encoded(spec(), each.vector, &received);
      for (const std::string& level : kernels::simd_levels()) {
        SCOPED_TRACE(level);
        const AtLevel at(level);
        ASSERT_EQ(encoded(spec(), each.vector), frame);
        SparseVector decoded;
        ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
        ASSERT_TRUE(same_bits(with_values(each.vector, received), listed_as(each.vector, decoded)));
      }
    }
  }
}

TEST_P(EveryCodec, IsNeverShorterThanAuto) {
  if (name() == "auto") GTEST_SKIP() << "is auto";
  for (const std::size_t count : frame_lengths()) {
    for (const NamedVector& each : vectors_for(name(), count, count)) {
      SCOPED_TRACE(each.name);
      ASSERT_LE(encoded("auto:values=" + format(), each.vector).size(), encoded(spec(), each.vector).size());
    }
  }
}

TEST_P(EveryCodec, RefusesValuesThatAreNotFinite) {
  Codec codec(spec());
  for (const std::uint32_t count : {1U, 16U, 33U, 300U, 1100U}) {
    const SparseVector good = drawn_vector({{5 * count, count}}, 1);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{count} / 2, std::size_t{count} - 1}) {
        SCOPED_TRACE(::testing::Message() << bad << " at " << at << " of " << count);
        SparseVector vector = good;
        vector.values[at] = bad;
        Bytes frame;
        EXPECT_THROW(codec.encode(vector, frame), UsageError);
        SparseVector full = full_vector(vector.values);
        EXPECT_THROW(codec.encode(full, frame), UsageError);
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_round_trip(codec, format(), good)) << "after a refusal";
  }
}

TEST_P(EveryCodec, RefusesADimThatNeedsMoreThan32Bits) {
  SparseVector vector;
  vector.dim = kLargestDim + 1;
  Bytes frame;
  EXPECT_THROW(Codec(spec()).encode(vector, frame), UsageError);
}

TEST(CodecSpec, RefusesUnknownNamesKeysAndValues) {
  for (const char* spec : {"", "huffman", "full", "golomb:values=f8", "golomb:values=", "golomb:colour=red",
                           "auto:values=int8,block=15", "auto:values=int4,block=65537", "auto:values=int2,block=x",
                           "auto:values=int2,block=-16", "golomb:", "golomb:values=f32,values=f32", "AUTO", " auto"}) {
    EXPECT_THROW(Codec{spec}, UsageError) << spec;
  }
}

// ---- what other encoders may write

TEST(FramesOfOtherEncoders, DecodeWhateverTheDivisor) {
  std::vector<std::uint32_t> divisors = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 100, 127, 128, 129};
  for (int bit = 8; bit < 32; ++bit) {
    for (const int more : {-1, 0, 1}) divisors.push_back((1U << bit) + static_cast<std::uint32_t>(more));
  }
  divisors.push_back(0xFFFFFFFEU);
  divisors.push_back(0xFFFFFFFFU);
  for (const std::size_t count : {0U, 1U, 17U, 1023U, 1024U, 1030U}) {
    for (const NamedVector& each : shapes(count, 1, 100 * count + 100)) {
      for (const std::uint32_t divisor : divisors) {
        SCOPED_TRACE(each.name + ", divisor " + std::to_string(divisor));
        for (const reference::IndexCodec indices : {reference::IndexCodec::golomb, reference::IndexCodec::runs}) {
          const Bytes frame = reference::write_frame(
              each.vector, {.indices = indices, .divisor = divisor, .divisor_of_length = divisors[divisor % 40]});
          SparseVector decoded;
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          ASSERT_TRUE(same_bits(each.vector, decoded));
        }
      }
    }
  }
}

TEST(FramesOfOtherEncoders, DecodeWithLargeGapsAndSmallDivisors) {
  for (const std::uint32_t gap : {1000U, 100'000U, 3'000'000U}) {
    for (const std::size_t count : {2U, 1025U}) {
      Indices indices = every_nth(count, 0, 1);
      indices.back() += gap;
      indices.front() = 0;
      const SparseVector vector = vector_of(std::uint64_t{indices.back()} + 1, indices, 1);
      for (const std::uint32_t divisor : {1U, 2U, 3U, 7U, 100U}) {
        SCOPED_TRACE(::testing::Message() << "gap " << gap << ", count " << count << ", divisor " << divisor);
        for (const reference::IndexCodec codec : {reference::IndexCodec::golomb, reference::IndexCodec::runs}) {
          SparseVector decoded;
          ASSERT_EQ(decode(reference::write_frame(vector, {.indices = codec, .divisor = divisor}), decoded),
                    DecodeStatus::ok);
          ASSERT_TRUE(same_bits(vector, decoded));
        }
      }
    }
  }
}

TEST(FramesOfOtherEncoders, DecodeInEveryForm) {
  for (const std::size_t count : frame_lengths()) {
    const auto k = static_cast<std::uint32_t>(count);
    for (std::uint8_t values = 0; values < 6; ++values) {
      for (std::uint8_t indices = 0; indices < 6; ++indices) {
        for (const std::uint32_t block : {16U, 17U, 1000U, 65536U}) {
          if (values < 3 && block != 16) continue;
          SCOPED_TRACE(::testing::Message() << "count " << count << ", index codec " << int{indices} << ", value codec "
                                            << int{values} << ", block " << block);
          const reference::Form form = {.indices = static_cast<reference::IndexCodec>(indices),
                                        .values = static_cast<reference::ValueCodec>(values),
                                        .block = block,
                                        .divisor = 5,
                                        .divisor_of_length = 3};
          SparseVector vector = drawn_vector({{4 * k + 3, k}}, count);
          if (indices == 0) vector = full_vector(vector.values);
          const Bytes frame = reference::write_frame(vector, form);
          const std::optional<reference::Frame> slow = reference::read_frame(frame);
          ASSERT_TRUE(slow.has_value());
          SparseVector decoded;
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          ASSERT_TRUE(same_bits(slow->vector, decoded));
          ASSERT_EQ(decoded.indices, vector.indices);
        }
      }
    }
  }
}

// ---- rounding

TEST(HalfValues, AreAllDecodedUnchanged) {
  for (const auto& [format, from] : {std::pair{"f16", &reference::from_f16}, {"bf16", &reference::from_bf16}}) {
    SCOPED_TRACE(format);
    Numbers finite;
    const bool is_f16 = std::string_view(format) == "f16";
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const float x = from(static_cast<std::uint16_t>(pattern));
      if (std::isfinite(x)) finite.push_back(x);
      Bytes frame = reference::write_frame(
          full_vector({1.0F}), {.indices = reference::IndexCodec::full,
                                .values = is_f16 ? reference::ValueCodec::f16 : reference::ValueCodec::bf16});
      frame[24] = static_cast<std::byte>(pattern & 0xFFU);
      frame[25] = static_cast<std::byte>(pattern >> 8U);
      SparseVector decoded;
      const DecodeStatus status = decode(reference::with_checksum(frame), decoded);
      ASSERT_EQ(status, std::isfinite(x) ? DecodeStatus::ok : DecodeStatus::bad_values) << pattern;
      if (std::isfinite(x)) {
        ASSERT_EQ(bits_of(decoded.values.at(0)), bits_of(x)) << pattern;
      }
    }
    for (const std::string& level : kernels::simd_levels()) {
      const AtLevel at(level);
      Numbers received;
      const Bytes frame = encoded(std::string("auto:values=") + format, full_vector(finite), &received);
      ASSERT_TRUE(same_bits(finite, received)) << level;
      SparseVector decoded;
      ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
      ASSERT_TRUE(same_bits(finite, decoded.values)) << level;
    }
  }
}

// Every 16-bit number and every tie between two of them, and the floats on both sides of each.
Numbers boundaries(float (*from)(std::uint16_t)) {
  Numbers all;
  for (std::uint32_t pattern = 0; pattern < 0x7FFF; ++pattern) {
    const float low = from(static_cast<std::uint16_t>(pattern));
    const float high = from(static_cast<std::uint16_t>(pattern + 1));
    if (!std::isfinite(low)) break;
    const float middle =
        std::isfinite(high) ? static_cast<float>((double{low} + double{high}) / 2) : std::nextafter(low, FLT_MAX);
    for (const float x : {low, middle}) {
      for (const float y : {std::nextafter(x, -FLT_MAX), x, std::nextafter(x, FLT_MAX)}) {
        all.push_back(y);
        all.push_back(-y);
      }
    }
  }
  return all;
}

TEST(HalfValues, AreRoundedToNearestTiesToEven) {
  reference::Random random(kFrameSeed);
  Numbers anything;
  while (anything.size() < (kSlowBuild ? 200'000 : 2'000'000)) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits() >> 32U));
    if (std::isfinite(x)) anything.push_back(x);
  }
  for (std::size_t i = 0; i < (kSlowBuild ? 100'000 : 1'000'000); ++i) {  // in the range of f16
    anything.push_back(static_cast<float>(std::ldexp(random.normal(), static_cast<int>(random.below(44)) - 27)));
  }
  for (const float edge : {65503.996F, 65504.0F, 65519.996F, 65520.0F, 65536.0F, FLT_MAX}) {
    anything.push_back(edge);
    anything.push_back(-edge);
  }
  for (const auto& [format, from] : {std::pair{"f16", &reference::from_f16}, {"bf16", &reference::from_bf16}}) {
    SCOPED_TRACE(::testing::Message() << format << ", seed " << kFrameSeed);
    for (const Numbers& values : {boundaries(from), anything}) {
      const Numbers expected = rounded(values, format);
      for (const std::string& level : kernels::simd_levels()) {
        SCOPED_TRACE(level);
        const AtLevel at(level);
        Numbers received;
        encoded(std::string("auto:values=") + format, full_vector(values), &received);
        ASSERT_TRUE(same_bits(expected, received));
      }
    }
  }
}

// The values of all codes of the block.
std::vector<double> codes_of(const reference::Frame& frame, std::size_t block) {
  const float low = frame.low.at(block);
  if (frame.form.values == reference::ValueCodec::int2) {
    const float high = frame.high.at(block);
    return {double{low}, -double{low}, double{high}, -double{high}};
  }
  const int largest = frame.form.values == reference::ValueCodec::int8 ? 127 : 7;
  std::vector<double> codes;
  for (int q = -largest; q <= largest; ++q) codes.push_back(double{static_cast<float>(q) * low});
  return codes;
}

double nearest_error(double x, const std::vector<double>& codes) {
  double least = INFINITY;
  for (const double code : codes) least = std::min(least, std::fabs(x - code));
  return least;
}

class IntegerValues : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls check(values, received, codes) for every block of many vectors.
  template <class Check>
  static void for_every_block(const Check& check) {
    for (const std::uint32_t size : {16U, 100U, 256U}) {
      for (std::size_t kind = 0; kind < value_kinds(); ++kind) {
        for (const std::size_t count : {1U, 40U, 1000U}) {
          SCOPED_TRACE(kind_name(kind) + ", count " + std::to_string(count) + ", block " + std::to_string(size));
          const Numbers values = values_of_kind(kind, count);
          Numbers received;
          const Bytes bytes =
              encoded("auto:values=" + GetParam() + ",block=" + std::to_string(size), full_vector(values), &received);
          const std::optional<reference::Frame> frame = reference::read_frame(bytes);
          ASSERT_TRUE(frame.has_value());
          ASSERT_EQ(frame->form.block, size);
          for (std::size_t begin = 0; begin < count; begin += size) {
            const std::size_t length = std::min<std::size_t>(size, count - begin);
            ASSERT_NO_FATAL_FAILURE(check(std::span(values).subspan(begin, length),
                                          std::span(received).subspan(begin, length), codes_of(*frame, begin / size)));
          }
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, IntegerValues, ::testing::Values("int8", "int4", "int2"),
                         [](const auto& test) { return test.param; });

TEST_P(IntegerValues, AreTheNearestThatTheirScaleAllows) {
  for_every_block([](std::span<const float> values, std::span<const float> received, const std::vector<double>& codes) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::fabs(double{values[i]} - double{received[i]}), nearest_error(double{values[i]}, codes))
          << std::hexfloat << values[i] << " became " << received[i] << ", at " << i;
    }
  });
}

double largest_of(std::span<const float> values) {
  double largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(double{x}));
  return largest;
}

double squared_error(std::span<const float> values, std::span<const float> received) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(double{values[i]} - double{received[i]}, 2);
  return sum;
}

// The error that the rounding of the scale itself can cause: half of the smallest number, times 127 for the largest
// code, or the last bits of the largest value.
double scale_rounding(double largest) { return 0x1p-143 + largest * 0x1p-21; }

TEST_P(IntegerValues, AreNoWorseThanWithThePlainScale) {
  for_every_block([](std::span<const float> values, std::span<const float> received, const std::vector<double>&) {
    const double largest = largest_of(values);
    if (GetParam() == "int8") {
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(double{values[i]} - double{received[i]}), largest / 254 + scale_rounding(largest)) << i;
      }
      return;
    }
    std::vector<double> plain;
    if (GetParam() == "int4") {
      for (int q = -7; q <= 7; ++q) plain.push_back(q * double{static_cast<float>(largest / 7)});
    } else {
      double mean = 0;
      for (const float x : values) mean += std::fabs(double{x}) / static_cast<double>(values.size());
      const double stored = double{reference::from_bf16(reference::to_bf16(static_cast<float>(mean)))};
      plain = {stored, -stored};
    }
    double otherwise = 0;
    for (const float x : values) otherwise += std::pow(nearest_error(double{x}, plain) + scale_rounding(largest), 2);
    ASSERT_LE(squared_error(values, received), otherwise);
  });
}

TEST_P(IntegerValues, KeepZerosZeroInABlockOfZeros) {
  Numbers received;
  encoded("auto:values=" + GetParam(), full_vector(Numbers(300)), &received);
  for (const float x : received) ASSERT_EQ(x, 0.0F);
}

// ---- with a Sifter

class RoundingLoss : public ::testing::TestWithParam<std::string> {};  // the name of a value format

INSTANTIATE_TEST_SUITE_P(Formats, RoundingLoss, ::testing::ValuesIn(names_of(value_formats())),
                         [](const auto& test) { return test.param; });

// received + memory == memory_before + gradient: exactly, except that formats with a scale round sent - received once.
void expect_nothing_lost(const Numbers& accumulated, const SparseVector& arrived, std::span<const float> memory,
                         const SparseVector& sent, bool exactly) {
  Numbers received(accumulated.size());
  Numbers left(accumulated.size());
  for (std::size_t i = 0; i < sent.size(); ++i) left[sent.index(i)] = sent.values[i];
  for (std::size_t i = 0; i < arrived.size(); ++i) received[arrived.index(i)] = arrived.values[i];
  for (std::size_t i = 0; i < accumulated.size(); ++i) {
    const double off = double{received[i]} + double{memory[i]} - double{accumulated[i]};
    const double loss = std::fabs(double{left[i]} - double{received[i]});
    const double allowed = exactly ? 0.0 : loss * 0x1p-24 + 0x1p-149;
    ASSERT_LE(std::fabs(off), allowed) << "at " << i << ": "
                                       << "sum " << accumulated[i] << ", received " << received[i] << ", memory "
                                       << memory[i];
  }
}

TEST_P(RoundingLoss, GoesBackIntoTheMemory) {
  const bool exactly = !has_blocks(GetParam());
  for (const Scope scope : {Scope::model, Scope::layer}) {
    for (const char* sparsifier :
         {"topk:ratio=0.05", "randomk:ratio=0.05", "randomk:ratio=0.7", "randomk:ratio=0.1,shared=true",
          "randomk:ratio=0.05,dense_below=100", "dense", "threshold:lambda=1.5"}) {
      SCOPED_TRACE(std::string(sparsifier) + (scope == Scope::model ? ", model" : ", layer"));
      Sifter sifter(sparsifier, "ef",
                    {.layout = layout_of({5, 0, 700, 64, 3000, 1}), .scope = scope, .rank = 2, .ranks = 4, .seed = 9});
      Codec codec("auto:values=" + GetParam());
      SparseVector sent;
      SparseVector arrived;
      Bytes frame;
      Numbers received;
      for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(step);
        const Numbers gradient = reference::input("normal").make(sifter.layout().dim(), step, 77);
        const Numbers accumulated = reference::accumulated(sifter.memory(), gradient, 1, 1);
        sifter.sift(Gradient(gradient), sent);
        codec.encode(sent, frame, &received);
        sifter.keep_rounding_loss(sent, received);
        ASSERT_EQ(decode(frame, arrived), DecodeStatus::ok);
        ASSERT_EQ(arrived.indices, sent.indices);
        ASSERT_TRUE(same_bits(received, arrived.values));
        ASSERT_NO_FATAL_FAILURE(expect_nothing_lost(accumulated, arrived, sifter.memory(), sent, exactly));
      }
    }
  }
}

// ---- indices that were drawn

TEST(DrawnIndices, AreNotSent) {
  constexpr std::size_t kFixed = 24 + 4 + 29;  // header, checksum, seed without units
  for (const char* codec : {"auto", "seed"}) {
    for (const char* spec : {"randomk:k=300", "randomk:k=300,shared=true", "randomk:k=300,seed=8"}) {
      SCOPED_TRACE(std::string(codec) + " of " + spec);
      for (const std::uint64_t n : {301U, 500U, 600U, 601U, 10'000U, 1'000'000U}) {
        SCOPED_TRACE(n);
        const SparseVector sent = sent_by(spec, {.layout = n, .rank = 3, .ranks = 5, .seed = 1, .first_step = 17});
        for (const auto& [format, bytes] : {std::pair{"f32", 4U}, {"bf16", 2U}}) {
          const Bytes frame = encoded(std::string(codec) + ":values=" + format, sent);
          // `auto` may find a shorter code if almost all entries are drawn.
          ASSERT_LE(frame.size(), kFixed + 300 * bytes);
          if (codec == std::string_view("seed")) {
            ASSERT_EQ(frame.size(), kFixed + 300 * bytes);
          }
          SparseVector decoded;
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          ASSERT_EQ(decoded.indices, sent.indices);
        }
      }
    }
  }
}

TEST(DrawnIndices, AreNotSentInLayerScope) {
  const Layout layout = layout_of({500, 0, 70'000, 64, 1, 30'000});
  for (const char* spec : {"randomk:ratio=0.05", "randomk:ratio=0.8", "randomk:ratio=0.05,shared=true"}) {
    SCOPED_TRACE(spec);
    for (const Role role : {Role::worker, Role::server}) {
      const SparseVector sent =
          sent_by(spec, {.layout = layout, .scope = Scope::layer, .rank = 3, .ranks = 5, .seed = 1, .role = role});
      for (const char* codec : {"auto", "seed"}) {
        const Bytes frame = encoded(codec, sent);
        EXPECT_LE(frame.size(), 28 + 4 * sent.size() + 29 + 8 * 6);
        SparseVector decoded;
        ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
        ASSERT_TRUE(same_bits(sent, decoded));
      }
    }
  }
}

TEST(DrawnIndices, AreSentIfSomeEntriesWereNotDrawn) {
  const SparseVector sent = sent_by("randomk:ratio=0.05,dense_below=100", {.layout = layout_of({50, 7000, 64})});
  SparseVector decoded;
  ASSERT_EQ(decode(encoded("auto", sent), decoded), DecodeStatus::ok);
  ASSERT_TRUE(same_bits(sent, decoded));
  Bytes frame;
  EXPECT_THROW(Codec("seed").encode(sent, frame), UsageError);
}

TEST(DrawnIndices, AreRequiredBySeed) {
  Bytes frame;
  for (const std::size_t count : {0U, 1U, 100U}) {
    const SparseVector vector = vector_of(1000, every_nth(count, 3, 2), 1);
    EXPECT_THROW(Codec("seed").encode(vector, frame), UsageError) << count;
  }
}

// If the indices were changed but not the draw, a reader refuses the frame; it never decodes another vector.
TEST(DrawnIndices, ThatWereChangedAreRefused) {
  for (const char* codec : {"auto", "seed"}) {
    SCOPED_TRACE(codec);
    for (const int change : {0, 1, 2, 3}) {
      SCOPED_TRACE(change);
      SparseVector vector = drawn_vector({{5000, 40}, {5000, 60}}, 1);
      if (change == 0) vector.indices.back() = vector.indices.back() == 9999 ? 9998 : 9999;
      if (change == 1) ++vector.draw.seed;
      if (change == 2) ++vector.draw.step;
      if (change == 3) vector.draw.rank ^= 1U;
      ASSERT_TRUE(vector.is_valid());
      SparseVector decoded;
      const DecodeStatus status = decode(encoded(codec, vector), decoded);
      if (codec == std::string_view("seed")) {
        EXPECT_EQ(status, DecodeStatus::bad_indices);
      }
      if (status == DecodeStatus::ok) {
        EXPECT_TRUE(same_bits(vector, decoded));
      } else {
        EXPECT_EQ(decoded.size(), 0U);
      }
    }
  }
}

TEST(DrawnIndices, AreDrawnAsTheReferenceDrawsThem) {
  for (const char* spec : {"randomk:ratio=0.05", "randomk:ratio=0.6"}) {
    const SparseVector sent =
        sent_by(spec, {.layout = layout_of({300, 5000, 7}), .scope = Scope::layer, .rank = 2, .ranks = 3, .seed = 123});
    Indices expected;
    std::uint32_t begin = 0;
    for (std::size_t u = 0; u < sent.draw.units.size(); ++u) {
      const Draw::Unit& unit = sent.draw.units[u];
      for (const std::uint32_t i : reference::draw_positions(sent.draw, u, unit.k, unit.size)) {
        expected.push_back(begin + i);
      }
      begin += unit.size;
    }
    EXPECT_EQ(sent.indices, expected);
  }
}

}  // namespace
}  // namespace sparsewire::codec_test
