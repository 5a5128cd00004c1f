// Top-k guesses its threshold from the last step. In these tests every guess is wrong, and the result must be exact all
// the same. The memory is kept over all steps, with one thread and with a Pool of three.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "effort.h"
#include "unit/walk.h"

namespace sparsewire::adversary_test {
namespace {

const std::size_t kSize = kSlowBuild ? 70001 : 150001;  // more than a block, so that a Pool has work
constexpr int kSteps = 24;

// The gradient of each step, from one vector of normal numbers.
using Attack = std::function<float(int step, std::size_t i, float normal)>;

void expect_exact(const std::string& spec, const Attack& attack, int steps = kSteps, std::size_t n = kSize) {
  SCOPED_TRACE("seed 51, n " + std::to_string(n));
  const Numbers normal = reference::input("normal").make(n, 0, 51);
  std::vector<Numbers> gradients;
  for (int step = 0; step < steps; ++step) {
    Numbers gradient(n);
    for (std::size_t i = 0; i < n; ++i)
      gradient[i] = attack(step, i, normal[(i + 31 * static_cast<std::size_t>(step)) % n]);
    gradients.push_back(std::move(gradient));
  }
  const Machine best = machines().front();
  check({spec, {.layout = n}, borrow(gradients)}, {best, {best.simd, 3}});
}

float power_of_100(int exponent) { return static_cast<float>(std::pow(100.0, exponent)); }

TEST(TopKUnderAttack, IsExactWhenTheScaleJumpsUpAndDownEveryStep) {
  expect_exact("topk:ratio=0.001", [](int step, std::size_t, float x) { return x * power_of_100(step % 2); });
}

TEST(TopKUnderAttack, IsExactWhenTheScaleKeepsRisingAndThenFalls) {
  expect_exact("topk:ratio=0.01",
               [](int step, std::size_t, float x) { return x * power_of_100(step < 12 ? step - 6 : 17 - step); });
}

TEST(TopKUnderAttack, IsExactWhenAllAreEqual) {
  expect_exact("topk:ratio=0.001", [](int, std::size_t, float) { return 0.75F; });
}

TEST(TopKUnderAttack, IsExactWhenAllAreEqualWithAlternatingSigns) {
  expect_exact("topk:ratio=0.01", [](int step, std::size_t i, float) {
    return (i + static_cast<std::size_t>(step)) % 2 == 0 ? 1.0F : -1.0F;
  });
}

TEST(TopKUnderAttack, IsExactWithFewerThanKNonZeros) {
  expect_exact("topk:ratio=0.01",
               [](int step, std::size_t i, float x) { return i % 1000 == static_cast<std::size_t>(step) ? x : 0.0F; });
}

TEST(TopKUnderAttack, IsExactWhenNothingAlternatesWithEverything) {
  expect_exact("topk:ratio=0.001", [](int step, std::size_t, float x) { return step % 4 == 3 ? x : 0.0F; });
}

TEST(TopKUnderAttack, IsExactWhenSorted) {
  expect_exact("topk:ratio=0.001", [](int, std::size_t i, float) { return static_cast<float>(i) * 1e-5F; });
  expect_exact(
      "topk:ratio=0.001", [](int, std::size_t i, float) { return static_cast<float>(kSize - i) * -1e-5F; }, 8);
}

TEST(TopKUnderAttack, IsExactWhenTheOrderIsReversedEveryStep) {
  expect_exact("topk:ratio=0.01", [](int step, std::size_t i, float) {
    return static_cast<float>(step % 2 == 0 ? i : kSize - i) * 1e-5F;
  });
}

TEST(TopKUnderAttack, IsExactWhenEveryStepCancelsTheLast) {
  const Numbers fixed = reference::input("normal").make(kSize, 0, 52);
  expect_exact("topk:ratio=0.001",
               [&](int step, std::size_t i, float) { return step % 2 == 0 ? fixed[i] : -fixed[i]; });
}

TEST(TopKUnderAttack, IsExactWhenItJumpsToDenormalsAndBack) {
  expect_exact("topk:ratio=0.001", [](int step, std::size_t, float x) { return step % 3 == 0 ? x : x * 1e-40F; });
  expect_exact(
      "topk:ratio=0.01", [](int, std::size_t, float x) { return x * 1e-42F; }, 6);
}

TEST(TopKUnderAttack, IsExactWhenAllAreWithinAFewUlps) {
  expect_exact("topk:ratio=0.001", [](int step, std::size_t i, float) {
    return step == 0 ? 1.0F + static_cast<float>(i * 2654435761U % 8) * 0x1p-23F : static_cast<float>(i % 3) * 0x1p-23F;
  });
}

TEST(TopKUnderAttack, IsExactWhenAllLargeEntriesAreAdjacent) {
  expect_exact("topk:ratio=0.01", [](int step, std::size_t i, float x) {
    const std::size_t from = static_cast<std::size_t>(step) * 12000;
    return i >= from && i < from + 3000 ? 50 * x : x;
  });
}

TEST(TopKUnderAttack, IsExactForAnyKFromOneToAll) {
  const Attack jumps = [](int step, std::size_t, float x) { return x * power_of_100(step % 3); };
  constexpr std::size_t kSmaller = 100003;
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}, kSmaller / 2, kSmaller - 1, kSmaller}) {
    SCOPED_TRACE("k " + std::to_string(k));
    expect_exact("topk:k=" + std::to_string(k), jumps, 6, kSmaller);
  }
}

// The same attacks on the other sparsifiers that use TopSelector.
TEST(TopKUnderAttack, IsExactInAllSparsifiersThatUseIt) {
  for (const char* spec : {"rtopk:ratio=0.001,r=2", "regtopk:ratio=0.001,mu=1", "regtopk:ratio=0.01,mu=0.5,q=0.3",
                           "threshold:ratio=0.01,calibrate=12", "topk:ratio=0.01,chunk=4096"}) {
    expect_exact(
        spec, [](int step, std::size_t, float x) { return x * power_of_100(step % 2); }, 14);
    expect_exact(
        spec, [](int step, std::size_t, float x) { return step % 4 == 3 ? x : 0.0F; }, 8);
    expect_exact(
        spec, [](int, std::size_t, float) { return 0.75F; }, 8);
  }
}

}  // namespace
}  // namespace sparsewire::adversary_test
