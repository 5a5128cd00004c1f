// What the host does around the kernels of a step, with a runtime whose kernels do nothing: so it runs without a GPU.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/idle_runtime.h"
#include "sparsewire/sifter.h"
#include "sparsify/device_memory.h"

namespace sparsewire::idle_device_test {
namespace {

using cuda_test::runtime_calls;
using cuda_test::RuntimeCalls;

constexpr std::size_t kSize = 100'003;
constexpr Device kDevice{Device::cuda, 0};

Gradient gradient() {
  static const std::vector<float> numbers(kSize, 1.0F);
  Gradient all(numbers);
  all.device = kDevice;
  return all;
}

template <class Step>
RuntimeCalls calls_of(Step step) {
  const RuntimeCalls before = runtime_calls();
  step();
  const RuntimeCalls after = runtime_calls();
  return {after.launches - before.launches, after.to_device - before.to_device, after.to_host - before.to_host,
          after.allocations - before.allocations};
}

// The tables of the units are all that is ever copied there.
TEST(CudaHost, MakesTablesOfChunksInTheFirstStepOnly) {
  Sifter sifter("topk:k=8,chunk=128", "ef:decay=0.95", {.layout = Layout(kSize)});
  SparseVector sent;
  EXPECT_GT(calls_of([&] { sifter.sift(gradient(), sent); }).to_device, 5U);
  for (int t = 0; t < 5; ++t) {
    const RuntimeCalls calls = calls_of([&] { sifter.sift(gradient(), sent); });
    EXPECT_EQ(calls.to_device, 0U) << t;
    EXPECT_EQ(calls.allocations, 0U) << t;
    EXPECT_EQ(calls.launches, 2U) << t;
  }
  EXPECT_EQ(sent.size(), 0U);
}

TEST(CudaHost, MakesTablesOfChunksWhereTheirEntriesChange) {
  Sifter sifter("topk:ratio=0.1,chunk=20,warmup_from=0.4,warmup_steps=4", "ef", {.layout = Layout(kSize)});
  SparseVector sent;
  const auto step = [&] { return calls_of([&] { sifter.sift(gradient(), sent); }).to_device; };
  for (int t = 0; t <= 4; ++t) EXPECT_GT(step(), 0U) << t;  // k is 8, 6, 4, 3, 2
  EXPECT_EQ(step(), 0U);
  sifter.set_step(2);
  EXPECT_GT(step(), 0U);
  sifter.set_step(9);
  EXPECT_GT(step(), 0U);
  EXPECT_EQ(step(), 0U);
  sifter.move_to({});
  EXPECT_GT(step(), 5U);  // not only the memory
  EXPECT_EQ(step(), 0U);
}

// With the same key nobody looks at the choices: here they are others, which must not be.
TEST(CudaHost, KnowsChoicesByTheirKey) {
  std::vector<Unit> units(kSize / 100);
  for (std::size_t u = 0; u < units.size(); ++u) {
    units[u] = {.segments = {{.begin = 100 * u, .size = 100, .position = 0}}, .size = 100};
  }
  const auto choices_of = [&](std::uint64_t k) {
    UnitChoices choices;
    choices.make(units.size(), [&](std::size_t) { return UnitChoice{.k = k}; });
    return choices;
  };
  const auto memory = make_device_memory(kDevice, 100 * units.size());
  Gradient numbers = gradient();
  numbers.size = 100 * units.size();
  const kernels::ScaledGradient scaled(numbers);
  TakenEntries taken;
  const auto take = [&](const UnitChoices& choices) {
    return calls_of([&] { EXPECT_FALSE(memory->take(units, choices, 1, nullptr, &scaled, taken)); }).to_device;
  };
  EXPECT_GT(take(choices_of(3)), 5U);
  EXPECT_EQ(take(choices_of(4)), 0U);
  UnitChoices changed = choices_of(3);
  changed.make(units.size(), [](std::size_t u) { return UnitChoice{.k = 3 + u % 2}; });
  EXPECT_GT(take(changed), 0U);
}

}  // namespace
}  // namespace sparsewire::idle_device_test
