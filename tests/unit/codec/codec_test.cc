// For every index codec and every value format: decoding gives what was encoded, with the rounded values that
// `received` announced, and the slow reader written from docs/reference/wire_format.md reads the same.
#include "sparsewire/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "effort.h"
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
  EXPECT_EQ(names, (std::set<std::string_view>{"auto", "golomb", "bitmap", "raw32", "seed", "runs", "adaptive"}));
  names.clear();
  for (const CodecInfo& info : value_formats()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.summary.empty());
    EXPECT_NO_THROW(Codec(info.example));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"f32", "f16", "bf16", "int8", "int4", "int2"}));
}

bool is_packed(const Bytes& frame) { return frame[6] >= std::byte{128}; }

TEST(Codecs, PackValuesWhereTheSpecSaysSo) {
  const Numbers values(500, 1.5F);
  const SparseVector sparse = {.dim = 5000, .indices = every_nth(500, 0, 7), .values = values, .draw = {}};
  const SparseVector full = full_vector(values);
  const SparseVector complete = {.dim = 500, .indices = every_nth(500, 0, 1), .values = values, .draw = {}};
  for (const auto& [spec, of_sparse, of_full] :
       {std::tuple("auto", true, false), std::tuple("auto:pack=yes", true, true),
        std::tuple("auto:pack=no", false, false), std::tuple("golomb", false, false),
        std::tuple("golomb:pack=sparse", true, false), std::tuple("adaptive:values=bf16,pack=yes", true, true),
        std::tuple("auto:values=int2", false, false)}) {
    SCOPED_TRACE(spec);
    EXPECT_EQ(is_packed(encoded(spec, sparse)), of_sparse);
    EXPECT_EQ(is_packed(encoded(spec, full)), of_full);
    if (std::string_view(spec).starts_with("auto")) {
      EXPECT_EQ(is_packed(encoded(spec, complete)), of_full);
    }
  }
  EXPECT_THROW(Codec("auto:pack=maybe"), UsageError);
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
  const std::uint32_t count = kSlowBuild ? 20011 : 100003;
  const std::uint32_t dim = 30 * count;
  Codec codec(spec());
  std::vector<SparseVector> vectors;
  if (name() == "seed") {
    vectors.push_back(drawn_vector({{dim, count}}, 1));
  } else {
    vectors.push_back(vector_of(dim, random_indices(dim, count, kFrameSeed), 1));
    const Indices in_runs = runs(count, 1, 100, kFrameSeed);
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

// From 16,384 entries on, its threads share the work.
TEST_P(EveryCodec, MakesAndReadsTheSameFrameWithAPool) {
  Pool pool(3);
  Codec codec(spec());
  for (const std::size_t count : {100U, 16383U, 16384U, 20011U}) {
    std::vector<NamedVector> vectors = vectors_for(name(), count, count);
    vectors.push_back({"full", full_vector(values_of_kind(1, count))});
    for (const NamedVector& each : vectors) {
      SCOPED_TRACE(each.name + ", count " + std::to_string(count));
      Numbers received;
      const Bytes frame = encoded(spec(), each.vector, &received);
      Bytes with_pool;
      Numbers received_with_pool;
      codec.encode(each.vector, with_pool, &received_with_pool, &pool);
      ASSERT_EQ(with_pool, frame);
      ASSERT_TRUE(same_bits(received, received_with_pool));
      SparseVector decoded;
      ASSERT_EQ(decode(frame, decoded, &pool), DecodeStatus::ok);
      ASSERT_TRUE(same_bits(with_values(each.vector, received), listed_as(each.vector, decoded)));
    }
  }
}

TEST(Codec, ThrowsAndRefusesTheSameWithAPool) {
  constexpr std::uint32_t kCount = 20000;
  Pool pool(2);
  SparseVector vector = vector_of(30 * kCount, random_indices(30 * kCount, kCount, kFrameSeed), 1);
  Codec seed("seed");
  Bytes frame;
  EXPECT_THROW(seed.encode(vector, frame, nullptr, &pool), UsageError) << "its indices were not drawn";
  for (const char* spec : {"auto:values=bf16", "golomb:values=int8", "runs"}) {
    SCOPED_TRACE(spec);
    const Bytes good = encoded(spec, vector);
    std::set<DecodeStatus> seen;
    for (std::size_t at = 24; at + 4 < good.size(); at += good.size() / 97) {
      Bytes bad = good;
      bad[at] ^= std::byte{0xFF};
      bad = reference::with_checksum(bad);
      SparseVector one;
      SparseVector other;
      const DecodeStatus status = decode(bad, one);
      ASSERT_EQ(decode(bad, other, &pool), status) << at;
      ASSERT_TRUE(same_bits(one, other)) << at;
      seen.insert(status);
    }
    EXPECT_GT(seen.size(), 1U);
  }
}

// `auto` chooses by estimates; the two that come closest to each other it tries.
TEST_P(EveryCodec, IsNeverMuchShorterThanAuto) {
  if (name() == "auto") GTEST_SKIP() << "is auto";
  for (const std::size_t count : frame_lengths()) {
    for (const NamedVector& each : vectors_for(name(), count, count)) {
      SCOPED_TRACE(each.name);
      const std::size_t size = encoded(spec(), each.vector).size();
      ASSERT_LE(encoded("auto:values=" + format(), each.vector).size(), size + size / 200 + 4);
      ASSERT_LE(encoded(spec() + ",pack=yes", each.vector).size(), size);
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

}  // namespace
}  // namespace sparsewire::codec_test
