#include "sparsify/unit_choices.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace sparsewire::unit_choices_test {
namespace {

class UnitChoicesTest : public testing::Test {
 protected:
  ChoicesKey make(std::uint64_t k, std::size_t count = 3) {
    choices_.make(count, [&](std::size_t u) { return UnitChoice{.k = k + u}; });
    return key();
  }
  ChoicesKey key(float factor = 1, int by = 0) const { return choices_.key(units_, factor, by); }

  std::vector<Unit> units_ = std::vector<Unit>(3);
  UnitChoices choices_;
};

TEST_F(UnitChoicesTest, HaveTheSameKeyAsLongAsTheyAreTheSame) {
  const ChoicesKey first = make(5);
  EXPECT_EQ(choices_.all()[2].k, 7U);
  EXPECT_EQ(make(5), first);
}

TEST_F(UnitChoicesTest, HaveAnotherKeyWhenOneChanges) {
  const ChoicesKey first = make(5);
  const ChoicesKey second = make(6);
  EXPECT_NE(second, first);
  EXPECT_NE(make(5), first);  // it may have been forgotten that it was so once
  for (std::size_t changed = 0; changed < 3; ++changed) {
    const ChoicesKey before = key();
    choices_.make(3, [&](std::size_t u) { return UnitChoice{.k = u <= changed ? 9 : 5 + u}; });
    EXPECT_NE(key(), before) << changed;
  }
  const auto threshold_of = [&](std::uint32_t threshold, std::uint64_t second_k) {
    choices_.make(3, [&](std::size_t) { return UnitChoice{.threshold = threshold, .second_k = second_k}; });
    return key();
  };
  const ChoicesKey third = threshold_of(1, 2);
  EXPECT_NE(threshold_of(2, 2), third);
  const ChoicesKey fourth = key();
  EXPECT_NE(threshold_of(2, 1), fourth);
}

TEST_F(UnitChoicesTest, HaveAnotherKeyForOtherUnitsFactorsAndDecisions) {
  const ChoicesKey first = make(5);
  EXPECT_NE(key(0.5F), first);
  EXPECT_NE(key(1, 1), first);
  const std::vector<Unit> others(3);
  EXPECT_NE(choices_.key(others, 1, 0), first);
  EXPECT_NE(choices_.key(std::span(units_).first(2), 1, 0), first);
  EXPECT_NE(make(5, 2), first);
}

TEST_F(UnitChoicesTest, HaveAnotherKeyAfterAnExceptionThatLeftSomeOfThemChanged) {
  const ChoicesKey first = make(5);
  EXPECT_THROW(choices_.make(3,
                             [](std::size_t u) {
                               if (u == 2) throw std::runtime_error("no room");
                               return UnitChoice{.k = 1};
                             }),
               std::runtime_error);
  EXPECT_NE(key(), first);
}

}  // namespace
}  // namespace sparsewire::unit_choices_test
