// How values are rounded, and that what rounding loses goes back into the error memory.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "effort.h"
#include "reference/half.h"
#include "sparsewire/codec.h"
#include "sparsewire/sifter.h"
#include "unit/bits.h"
#include "unit/frames.h"
#include "unit/sifters.h"
#include "unit/walk.h"

namespace sparsewire::value_formats_test {
namespace {

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

}  // namespace
}  // namespace sparsewire::value_formats_test
