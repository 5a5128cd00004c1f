// What a device decides beyond magnitudes, in a model of several units: rTop-k's draw and RegTop-k's scores. That the
// entries are the right ones is shown in sifter_test.cc; here, that it is the device that chooses them.
#include <gtest/gtest.h>

#include <random>

#include "sparsify/device_memory.h"
#include "unit/device/arrays.h"

namespace sparsewire::second_choice_test {
namespace {

constexpr std::size_t kSize = 30'000;

class SecondChoiceOnADevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  }

  // Ten steps over units of three sizes, of which one is sent whole. Returns how often the device has chosen twice.
  static int count_choices(const kernels::SecondChoice& second) {
    const std::vector<Unit> units = {unit_of(0, 20'000), unit_of(20'000, 9'900), unit_of(29'900, 100)};
    const std::vector<UnitChoice> of_units = {
        {.k = 60, .second_k = 20}, {.k = 30, .second_k = 10}, {.threshold = kernels::kLowestKey}};
    UnitChoices choices;
    choices.make(of_units.size(), [&](std::size_t u) { return of_units[u]; });
    const auto memory = make_device_memory(device_test::kDevice, kSize);
    std::mt19937_64 random(3);
    std::normal_distribution<float> draw;
    int count = 0;
    for (int step = 0; step < 10; ++step) {
      std::vector<float> numbers(kSize);
      for (float& one : numbers) one = draw(random);
      const device_test::Copy copy(numbers.data(), numbers.size() * sizeof(float));
      kernels::ScaledGradient gradient(Gradient(copy.data(), NumberType::f32, kSize));
      gradient.device = device_test::kDevice;
      gradient.stream = device_test::stream();
      TakenEntries taken;
      EXPECT_FALSE(memory->take(units, choices, 1, &second, &gradient, taken));
      if (!taken.chosen_twice) continue;
      EXPECT_EQ(taken.ends, (std::vector<std::size_t>{20, 30, 130}));
      ++count;
    }
    return count;
  }

 private:
  static Unit unit_of(std::size_t begin, std::size_t size) {
    return {.segments = {{.begin = begin, .size = size, .position = 0}}, .size = size};
  }
};

TEST_F(SecondChoiceOnADevice, DrawsInUnits) { EXPECT_GE(count_choices({.draw = Stream(1, 2, 3, 4)}), 6); }

TEST_F(SecondChoiceOnADevice, ScoresInUnits) {
  const kernels::Regularisation regularisation{.weight = 0.5, .mu = 4};
  const std::vector<kernels::LastRound> last_round = {{7, 1, 0.5F}, {20'007, 1, 0.1F}};
  EXPECT_GE(count_choices({.regularisation = &regularisation, .last_round = last_round}), 6);
}

}  // namespace
}  // namespace sparsewire::second_choice_test
