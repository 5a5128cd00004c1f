// A new exchange, index codec or value format is one file and one line. This program has one more of each (extra/), and
// compiles nothing of the library again but the two lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/value_format.h"
#include "exchange/bodies.h"
#include "sparsewire/codec.h"
#include "unit/specs.h"

namespace sparsewire::extra_parts_test {
namespace {

using bodies::Plan;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

std::uint64_t updates_of(const Plan& plan) {
  std::uint64_t sum = 0;
  run_on_threads(3, [&](Transport& transport) {
    const std::uint64_t mine = bodies::replicas_stay_equal(transport, plan, 12);
    if (transport.rank() == 0) sum = mine;
  });
  return sum;
}

std::string error_of(const WorkerConfig& config) {
  std::string text;
  run_on_threads(1, [&](Transport& transport) {
    try {
      const Worker worker(config, 100, transport);
    } catch (const UsageError& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(AnExtraExchange, IsListedAndServesEverySparsifier) {
  EXPECT_THAT(exchange_choices(), Contains(Field(&ExchangeChoice::name, "echo")));
  for (const std::string& spec : example_specs()) {
    for (const char* codec : {"auto", "auto:values=bf16"}) {
      EXPECT_EQ(updates_of(bodies::plan_of(spec, {"echo"}, codec)),
                updates_of(bodies::plan_of(spec, {"allgather"}, codec)));
    }
  }
  EXPECT_THAT(error_of({.exchange = "echo", .downlink = "topk:ratio=0.1"}), HasSubstr("[echo] has no server"));
}

TEST(AnExtraExchange, FailsOnAllRanksIfOneGradientIsBad) {
  Plan plan = bodies::plan_of("topk:ratio=0.1", {"echo"});
  plan.fill = bodies::fill_exact_gradient;
  plan.weights = {2, 1, 1};
  const bodies::BadEntry bad[] = {{1, 17, std::numeric_limits<float>::quiet_NaN()}};
  run_on_threads(3, [&](Transport& transport) { bodies::a_bad_gradient_fails_everywhere(transport, plan, bad); });
}

TEST(AnExtraIndexCodecAndValueFormat, TravelInFrames) {
  for (const char* spec : {"steps32", "auto:values=f24", "steps32:values=f24", "golomb:values=f24"}) {
    Codec codec(spec);
    EXPECT_EQ(codec.rounds(), std::string_view(spec).ends_with("f24")) << spec;
    SparseVector vector{.dim = 1000, .indices = {0, 3, 998}, .values = {1.1F, -2.2F, 3e-9F}, .draw = {}};
    std::vector<std::byte> frame;
    std::vector<float> received;
    codec.encode(vector, frame, &received);
    SparseVector back;
    ASSERT_EQ(decode(frame, back), DecodeStatus::ok) << spec;
    EXPECT_EQ(back.indices, vector.indices);
    EXPECT_EQ(back.values, received);
  }
}

// Rounding losses stay in the memory, and the exchanges ask the format instead of its name.
TEST(AnExtraValueFormat, WorksWithEveryExchange) {
  for (const bodies::ExchangeCase& setup : bodies::every_exchange_case()) {
    const Plan plan = bodies::plan_of("topk:ratio=0.1", setup, "auto:values=f24");
    if (setup.exchange == "dense") {
      EXPECT_THAT(error_of(plan.config), HasSubstr("cannot add values=f24; take f32 or bf16"));
      continue;
    }
    run_on_threads(3, [&](Transport& transport) { bodies::nothing_is_lost(transport, plan, 8); });
  }
}

// `auto` counts its 24 bits. A full vector needs at least as many, so it travels as f32.
TEST(AnExtraValueFormat, TellsItsBits) {
  EXPECT_EQ(value_format_of("auto:values=f24").bits, 24);
  EXPECT_EQ(reducible_format(value_format_of("auto:values=f24")).info.name, "f32");
  EXPECT_EQ(reducible_format(value_format_of("auto:values=int4")).info.name, "bf16");
  EXPECT_EQ(reducible_format(value_format_of("auto:values=f16")).info.name, "bf16");
  EXPECT_EQ(reducible_format(value_format_of("golomb")).info.name, "f32");
}

}  // namespace
}  // namespace sparsewire::extra_parts_test
