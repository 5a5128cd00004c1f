// Frames that other encoders may write: the decoder reads whatever docs/reference/wire_format.md allows.
#include <gtest/gtest.h>

#include <cstring>

#include "sparsewire/codec.h"
#include "unit/bits.h"
#include "unit/frames.h"
#include "unit/walk.h"

namespace sparsewire::other_encoders_test {
namespace {

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

TEST(FramesOfOtherEncoders, DecodeNumbersWithEveryParameter) {
  for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 64U, 1024U, 1100U}) {
    for (const NamedVector& each : shapes(count, 1, 100 * count + 100)) {
      for (const int linear : {0, 1, 5, 63}) {
        for (const std::vector<std::uint8_t>& parameters :
             {std::vector<std::uint8_t>{0}, {1, 1, 4}, {7, 0, 31, 16}, {24}, {31, 30}, {2, 2, 2, 2, 2, 2, 2, 9}}) {
          SCOPED_TRACE(each.name + ", linear " + std::to_string(linear) + ", " + std::to_string(parameters[0]));
          SparseVector decoded;
          ASSERT_EQ(decode(reference::write_frame(each.vector, {.indices = reference::IndexCodec::adaptive,
                                                                .linear = static_cast<std::uint8_t>(linear),
                                                                .parameters = parameters}),
                           decoded),
                    DecodeStatus::ok);
          ASSERT_TRUE(same_bits(each.vector, decoded));
        }
      }
    }
  }
}

TEST(FramesOfOtherEncoders, AreRefusedWithAnUnknownLinear) {
  const SparseVector vector = drawn_vector({{1000, 200}}, 1);
  for (const bool packed : {false, true}) {
    for (const int linear : {63, 64, 255}) {
      const Bytes frame = reference::write_frame(
          vector, {.indices = packed ? reference::IndexCodec::raw32 : reference::IndexCodec::adaptive,
                   .packed = packed,
                   .linear = static_cast<std::uint8_t>(linear),
                   .parameters = {29}});
      SparseVector decoded;
      const DecodeStatus refused = packed ? DecodeStatus::bad_values : DecodeStatus::bad_indices;
      EXPECT_EQ(decode(frame, decoded), linear == 63 ? DecodeStatus::ok : refused) << linear;
    }
  }
}

TEST(FramesOfOtherEncoders, AreRefusedWithAnIndexOfDimOrMore) {
  for (const std::uint32_t count : {1U, 3U, 40U, 1100U}) {
    const SparseVector vector = drawn_vector({{4 * count + 3, count}}, 1);
    for (const reference::IndexCodec indices : {reference::IndexCodec::adaptive, reference::IndexCodec::golomb}) {
      Bytes frame = reference::write_frame(vector, {.indices = indices, .divisor = 3, .parameters = {2}});
      SparseVector decoded;
      for (const std::uint64_t more : {1U, 0U}) {
        const std::uint64_t dim = vector.indices.back() + more;
        std::memcpy(frame.data() + 8, &dim, sizeof(dim));
        EXPECT_EQ(decode(reference::with_checksum(frame), decoded),
                  more == 1 ? DecodeStatus::ok : DecodeStatus::bad_indices)
            << count;
      }
    }
  }
}

// Zero bits up to the next byte, and nothing else.
TEST(FramesOfOtherEncoders, AreRefusedWithBytesOrBitsAfterTheRests) {
  const SparseVector vector = drawn_vector({{1000, 201}}, 1);
  const Bytes frame = reference::write_frame(vector, {.indices = reference::IndexCodec::adaptive, .parameters = {3}});
  SparseVector decoded;
  ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode(reference::with_checksum(longer), decoded), DecodeStatus::bad_indices);
  Bytes other = frame;
  other[other.size() - 5] |= std::byte{0x80};
  ASSERT_NE(other, frame);
  EXPECT_EQ(decode(reference::with_checksum(other), decoded), DecodeStatus::bad_indices);
}

TEST(FramesOfOtherEncoders, DecodeTheLargestNumbers) {
  for (const std::uint32_t last : {0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFDU, 0xFFFFFFFEU}) {
    for (const int linear : {0, 1, 63}) {
      for (std::uint8_t parameter = 0; parameter < 32; ++parameter) {
        for (const std::size_t before : {0U, 40U}) {
          SCOPED_TRACE(::testing::Message() << last << ", " << linear << ", " << int{parameter} << ", " << before);
          Indices indices = every_nth(before, 0, 1);
          indices.push_back(last);
          const SparseVector vector = vector_of(kLargestDim, indices, 1);
          SparseVector decoded;
          ASSERT_EQ(decode(reference::write_frame(vector, {.indices = reference::IndexCodec::adaptive,
                                                           .linear = static_cast<std::uint8_t>(linear),
                                                           .parameters = {parameter}}),
                           decoded),
                    DecodeStatus::ok);
          ASSERT_TRUE(same_bits(vector, decoded));
        }
      }
    }
  }
}

TEST(FramesOfOtherEncoders, DecodePackedValuesInEveryForm) {
  for (const std::size_t count : {0U, 1U, 32U, 33U, 1025U, 4099U}) {
    const auto k = static_cast<std::uint32_t>(count);
    const SparseVector vector = drawn_vector({{4 * k + 3, k}}, count);
    for (std::uint8_t values = 0; values < 5; ++values) {
      for (const int fold : {0, 1}) {
        if (values == 0 && fold == 1) continue;  // twice their distances exceed 32 bits
        for (const int linear : {0, 4, 63}) {
          const reference::Form form = {.indices = reference::IndexCodec::raw32,
                                        .values = static_cast<reference::ValueCodec>(values),
                                        .block = 33,
                                        .packed = true,
                                        .fold = static_cast<std::uint8_t>(fold),
                                        .reference = fold == 0    ? 0U
                                                     : values < 3 ? 1000U
                                                                  : 3U,
                                        .linear = static_cast<std::uint8_t>(linear),
                                        .parameters = {static_cast<std::uint8_t>(values == 0 ? 29 : 11), 31, 13}};
          SCOPED_TRACE(::testing::Message() << "count " << count << ", value codec " << int{values} << ", fold " << fold
                                            << ", linear " << linear);
          const Bytes frame = reference::write_frame(vector, form);
          const std::optional<reference::Frame> slow = reference::read_frame(frame);
          ASSERT_TRUE(slow.has_value());
          SparseVector decoded;
          ASSERT_EQ(decode(frame, decoded), DecodeStatus::ok);
          ASSERT_TRUE(same_bits(slow->vector, decoded));
        }
      }
    }
  }
}

TEST(FramesOfOtherEncoders, DecodeInEveryForm) {
  for (const std::size_t count : frame_lengths()) {
    const auto k = static_cast<std::uint32_t>(count);
    for (std::uint8_t values = 0; values < 6; ++values) {
      for (std::uint8_t indices = 0; indices < 7; ++indices) {
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

}  // namespace
}  // namespace sparsewire::other_encoders_test
