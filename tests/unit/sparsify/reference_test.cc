// Tests the reference itself with cases worked out by hand. Does not use the library.
#include "reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/feedback.h"
#include "reference/half.h"
#include "reference/inputs.h"
#include "reference/philox.h"
#include "reference/wire.h"

namespace sparsewire::reference::reference_test {
namespace {

using Indices = std::vector<std::uint32_t>;

Setting model(std::uint64_t n) {
  Setting setting;
  setting.tensors = {n};
  return setting;
}

Indices sent(const std::string& spec, const Numbers& gradient, const Setting& setting) {
  Numbers memory(gradient.size());
  return make(spec, setting)->sift(gradient, memory).out.indices;
}

TEST(ReferencePhilox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(ReferencePhilox, PutsIndexStepRankAndRoleIntoTheCounter) {
  const Stream stream{0x299f31d0a4093822U, (std::uint64_t{0x12} << 32U) | 0x85a308d3U, 0x13198a2e, 3};
  EXPECT_EQ(stream.block(0x243f6a88),
            philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03000012}, {0xa4093822, 0x299f31d0}));
}

TEST(ReferenceHalf, WidensByTheDefinition) {
  EXPECT_EQ(from_f16(0x3C00), 1.0F);
  EXPECT_EQ(from_f16(0xC000), -2.0F);
  EXPECT_EQ(from_f16(0x7BFF), 65504.0F);
  EXPECT_EQ(from_f16(0x0001), 0x1p-24F);
  EXPECT_EQ(from_f16(0x3555), 0.333251953125F);
  EXPECT_TRUE(std::signbit(from_f16(0x8000)));
  EXPECT_EQ(from_f16(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(from_f16(0x7C01)));
  EXPECT_EQ(from_bf16(0x3F80), 1.0F);
  EXPECT_EQ(from_bf16(0xC049), -3.140625F);
  EXPECT_EQ(from_bf16(0x0001), 0x1p-133F);
  EXPECT_TRUE(std::isinf(from_bf16(0x7F80)));
}

TEST(ReferenceHalf, NarrowsToTheNearestAndSaturates) {
  EXPECT_EQ(to_f16(1.0F), 0x3C00);
  EXPECT_EQ(to_f16(-0.0F), 0x8000);
  EXPECT_EQ(to_f16(0x1.002p0F), 0x3C00) << "ties go to even";
  EXPECT_EQ(to_f16(0x1.006p0F), 0x3C02);
  EXPECT_EQ(to_f16(0x1p-25F), 0x0000);
  EXPECT_EQ(to_f16(0x1.000002p-25F), 0x0001);
  EXPECT_EQ(to_f16(65520.0F), 0x7BFF);
  EXPECT_EQ(to_f16(-1e38F), 0xFBFF);
  EXPECT_EQ(to_bf16(0x1.01p0F), 0x3F80);
  EXPECT_EQ(to_bf16(0x1.03p0F), 0x3F82);
  EXPECT_EQ(to_bf16(-0x1.fffffep127F), 0xFF7F);
}

// The examples of docs/reference/wire_format.md.
TEST(ReferenceWire, ReadsTheExamplesOfTheDocument) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xE3069283U);

  const std::vector<std::uint8_t> bytes = {0x53, 0x57, 0x46, 0x52, 0x01, 0x01, 0x00, 0x00, 0x64, 0x00, 0x00, 0x00,
                                           0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                           0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x80, 0x3e,
                                           0x0b, 0x00, 0x00, 0x00, 0xa7, 0xa0, 0x00, 0x29, 0xa3, 0xbf, 0x96};
  const auto example = std::as_bytes(std::span(bytes));
  const std::optional<Frame> frame = read_frame(example);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->vector.dim, 100U);
  EXPECT_EQ(frame->vector.indices, (std::vector<std::uint32_t>{3, 17, 64}));
  EXPECT_EQ(frame->vector.values, (std::vector<float>{1.5F, -2, 0.25F}));
  EXPECT_EQ(frame->form.divisor, 11U);
  EXPECT_EQ(write_frame(frame->vector, frame->form), Bytes(example.begin(), example.end()));

  const Draw draw = {.seed = 7, .step = 3, .rank = 2};
  EXPECT_EQ(draw_positions(draw, 0, 6, 1000), (std::vector<std::uint32_t>{52, 53, 298, 497, 595, 868}));
}

TEST(ReferenceK, RoundsHalfUpAndSendsAtLeastOne) {
  EXPECT_EQ(k_of(0.01, 1000), 10U);
  EXPECT_EQ(k_of(0.01, 149), 1U);
  EXPECT_EQ(k_of(0.5, 5), 3U);
  EXPECT_EQ(k_of(0.001, 3), 1U);
  EXPECT_EQ(k_of(1, 7), 7U);
}

TEST(ReferenceK, WarmsUpGeometrically) {
  const Keys keys("topk:ratio=0.01,warmup_from=0.25,warmup_steps=2");
  EXPECT_DOUBLE_EQ(ratio_at(keys, 0), 0.25);
  EXPECT_DOUBLE_EQ(ratio_at(keys, 1), 0.05);
  EXPECT_DOUBLE_EQ(ratio_at(keys, 2), 0.01);
  EXPECT_DOUBLE_EQ(ratio_at(keys, 99), 0.01);
}

TEST(ReferenceK, IsSharedOutOverTensorsInProportion) {
  Setting layers;
  layers.tensors = {10, 0, 20, 1, 70};
  layers.by_layer = true;
  const Partition parts = partition(Keys("topk:k=10,dense_below=5"), layers, 0);
  EXPECT_EQ(parts.whole, (Indices{30}));
  ASSERT_EQ(parts.units.size(), 3U);
  EXPECT_EQ(parts.units[0].k, 1U);
  EXPECT_EQ(parts.units[1].k, 2U);
  EXPECT_EQ(parts.units[2].k, 7U);
  EXPECT_EQ(parts.units[2].entries.front(), 31U);
}

TEST(ReferenceTopK, SendsTheLargestAndKeepsTheRest) {
  Numbers memory = {0, 1, 0, -3, 0};
  const Round round = make("topk:k=2", model(5))->sift(Numbers{1, 1, -5, 1, 0}, memory);
  EXPECT_EQ(round.out.indices, (Indices{1, 2}));
  EXPECT_EQ(round.out.values, (Numbers{2, -5}));
  EXPECT_EQ(memory, (Numbers{1, 0, 0, -2, 0}));
  EXPECT_EQ(round.accumulated_norm2, 1 + 4 + 25 + 4);
  EXPECT_EQ(round.sent_norm2, 29);
}

TEST(ReferenceTopK, BreaksTiesByTheLowerIndexAndSkipsZeros) {
  EXPECT_EQ(sent("topk:k=2", {1, -1, 1, 1}, model(4)), (Indices{0, 1}));
  EXPECT_EQ(sent("topk:k=3", {0, -0.0F, 7, 0}, model(4)), (Indices{2}));
  EXPECT_EQ(sent("topk:k=1,chunk=3", {1, 2, 3, 3, 2, 1, 0.5F}, model(7)), (Indices{2, 3, 6}));
}

TEST(ReferenceRandomK, DrawsKDistinctEntries) {
  const Numbers zeros(100);
  EXPECT_EQ(sent("randomk:k=7", zeros, model(100)).size(), 7U);
  EXPECT_EQ(sent("randomk:k=93", zeros, model(100)).size(), 93U);
  EXPECT_EQ(sent("randomk:k=100", zeros, model(100)).size(), 100U);
  // With counter and key 0 the first draw is e169c58d6627e8d5, which is position 88 of 100; the second is
  // 9b00dbd8bc57ac4c, position 60.
  EXPECT_EQ(sent("randomk:k=2", zeros, model(100)), (Indices{60, 88}));
}

TEST(ReferenceRTopK, KeepsTheSmallestHashesOfTheLargest) {
  const Numbers gradient = {1, 9, 8, 7, 6, 2, 3};
  const Stream stream{};
  Indices largest_four = {1, 2, 3, 4};
  std::sort(largest_four.begin(), largest_four.end(),
            [&](std::uint32_t i, std::uint32_t j) { return stream.block(i)[0] < stream.block(j)[0]; });
  largest_four.resize(2);
  std::sort(largest_four.begin(), largest_four.end());
  EXPECT_EQ(sent("rtopk:k=2,r=2", gradient, model(7)), largest_four);
  EXPECT_EQ(sent("rtopk:k=2,r=1", gradient, model(7)), (Indices{1, 2}));
}

TEST(ReferenceThreshold, IncludesItsBoundAndNeverSendsZeros) {
  EXPECT_EQ(sent("threshold:lambda=0.5", {0.5F, -0.5F, 0.25F, -2, 0}, model(5)), (Indices{0, 1, 3}));
  EXPECT_EQ(sent("threshold:lambda=0", {0, -0.0F, 1e-40F}, model(3)), (Indices{2}));
}

TEST(ReferenceThreshold, TakesTheLowerMedianOfTheLastRecords) {
  const std::unique_ptr<Reference> slow = make("threshold:ratio=0.25,calibrate=20", model(4));
  for (int step = 0; step < 20; ++step) {
    Numbers memory(4);
    EXPECT_EQ(slow->vote(), nullptr);
    slow->sift(Numbers{0, static_cast<float>(20 - step), 0, 0}, memory);
  }
  ASSERT_NE(slow->vote(), nullptr);
  EXPECT_EQ(*slow->vote(), 1.0F);
  Numbers memory(4);
  EXPECT_EQ(slow->sift(Numbers{1, 0.99F, -3, 0}, memory).out.indices, (Indices{0, 2}));
  EXPECT_EQ(slow->vote(), nullptr);
}

TEST(ReferenceRegTopK, AvoidsAnEntryThatTheOthersCancelled) {
  Setting setting = model(3);
  setting.ranks = 2;
  const std::unique_ptr<Reference> slow = make("regtopk:k=1,mu=1", setting);
  Numbers memory(3);
  const Round first = slow->sift(Numbers{10, 1, 0}, memory);
  EXPECT_EQ(first.out.indices, (Indices{0}));
  slow->observe(first.out, Numbers{0});
  const Round second = slow->sift(Numbers{10, 1, 0}, memory);
  EXPECT_EQ(second.scores, (Numbers{0, 2, 0}));
  EXPECT_EQ(second.out.indices, (Indices{1}));
  EXPECT_EQ(slow->sift(Numbers{0, 0, 0}, memory).out.indices, (Indices{0})) << "nothing was observed";
}

TEST(ReferenceFeedback, ClearsTheVelocityWhereItSends) {
  Feedback slow("topk:k=1", "momentum:m=0.5", model(2));
  EXPECT_EQ(slow.sift(Numbers{4, 2}).out.values, (Numbers{4}));
  EXPECT_EQ(slow.velocity(), (Numbers{0, 2}));
  EXPECT_EQ(slow.sift(Numbers{1, 2}).out.values, (Numbers{5}));  // memory 2, velocity 0.5*2 + 2
  EXPECT_EQ(slow.memory(), (Numbers{1, 0}));
  EXPECT_EQ(slow.velocity(), (Numbers{1, 0}));
  EXPECT_EQ(slow.totals().total_error, 4 + 1);
}

TEST(ReferenceFeedback, ClipsTheLocalGradient) {
  Setting setting = model(2);
  setting.ranks = 4;
  Feedback slow("dense", "momentum:m=0.5,clip=5", setting);
  EXPECT_EQ(slow.sift(Numbers{3, 4}).out.values, (Numbers{1.5F, 2}));
}

TEST(ReferenceFeedback, DropsScalesOrDecays) {
  Feedback none("topk:k=1", "none", model(2));
  none.sift(Numbers{3, 2});
  EXPECT_EQ(none.memory(), (Numbers{0, 0}));
  EXPECT_EQ(none.totals().memory_norm2, 4);
  Feedback ef("topk:k=1", "ef:decay=0.5,scale=lr", model(2));
  ef.sift(Numbers{3, 2}, 2);
  EXPECT_EQ(ef.sift(Numbers{0, 1}, 1).out.values, (Numbers{3}));
}

TEST(ReferenceInputs, StayFiniteOverSeveralSteps) {
  for (const Input& input : catalogue()) {
    SCOPED_TRACE(input.name);
    Numbers memory(1025);
    for (const Numbers& gradient : sequence(input, 1025, 6, 3)) {
      memory = accumulated(memory, gradient, 1, 1);
      for (const float x : memory) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace sparsewire::reference::reference_test
