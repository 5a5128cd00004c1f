// The order in which squares are summed (kernels/norm.h), against a version that follows its words one by one.
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "reference/inputs.h"
#include "sparsewire/sifter.h"
#include "unit/bits.h"
#include "unit/machines.h"
#include "unit/walk.h"

namespace sparsewire::norm_test {
namespace {

double pairwise(std::vector<double> numbers) {
  while (numbers.size() > 1) {
    const std::size_t half = numbers.size() / 2;
    std::vector<double> sums;
    for (std::size_t i = 0; i < half; ++i) sums.push_back(numbers[i] + numbers[half + i]);
    numbers = sums;
  }
  return numbers[0];
}

double of_tile(const std::vector<double>& numbers, std::size_t begin) {
  std::vector<double> slices;
  for (std::size_t s = 0; s < 8; ++s) {
    std::vector<double> lanes(32, 0.0);
    for (std::size_t o = 0; o < 512; ++o) {
      const std::size_t i = begin + s * 512 + o;
      if (i < numbers.size()) lanes[o % 32] += numbers[i];
    }
    slices.push_back(pairwise(lanes));
  }
  return pairwise(slices);
}

double slow_norm2(std::span<const float> unit) {
  std::vector<double> numbers;
  for (const float x : unit) numbers.push_back(static_cast<double>(x) * static_cast<double>(x));
  if (numbers.empty()) return 0;
  do {
    std::vector<double> tiles;
    for (std::size_t begin = 0; begin < numbers.size(); begin += 4096) tiles.push_back(of_tile(numbers, begin));
    numbers = tiles;
  } while (numbers.size() > 1);
  return numbers[0];
}

TEST(Norm, FollowsItsOrderAtEveryLengthAndOnEveryMachine) {
  std::vector<std::size_t> lengths = reference::small_lengths();
  for (const std::size_t n : {511U, 512U, 513U, 4095U, 4096U, 4097U, 65537U, 200'003U}) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    if (n == 0) continue;
    const Numbers gradient = reference::input("spread_scales").make(n, 0, 5);
    for (const Machine& machine : machines()) {
      const AtLevel level(machine.simd);
      Sifter sifter("topk:ratio=0.02", "ef", {.layout = n, .pool = pool_of(machine.threads)});
      SparseVector sent;
      sifter.sift(gradient, sent);
      // What is sent is a unit of its own.
      const double stays = std::max(0.0, slow_norm2(gradient) - slow_norm2(sent.values));
      ASSERT_TRUE(same_bits(sifter.stats().sent_norm2, slow_norm2(sent.values))) << n;
      ASSERT_TRUE(same_bits(sifter.stats().memory_norm2, sent.size() == n ? 0 : stays)) << n;

      Sifter dense("dense", "ef", {.layout = n, .pool = pool_of(machine.threads)});
      dense.sift(gradient, sent);
      ASSERT_TRUE(same_bits(dense.stats().sent_norm2, slow_norm2(gradient))) << n;
      ASSERT_EQ(dense.stats().memory_norm2, 0) << n;
    }
  }
}

// As many entries as several threads sum together.
TEST(Norm, OfManyThatAreSentIsTheSameOnEveryMachine) {
  const std::size_t n = 200'003;
  const Numbers gradient = reference::input("normal").make(n, 0, 5);
  for (const Machine& machine : machines()) {
    const AtLevel level(machine.simd);
    Sifter sifter("topk:ratio=0.5", "ef", {.layout = n, .pool = pool_of(machine.threads)});
    SparseVector sent;
    sifter.sift(gradient, sent);
    ASSERT_GT(sent.size(), 65'536U);
    EXPECT_TRUE(same_bits(sifter.stats().sent_norm2, slow_norm2(sent.values)));
  }
}

// Small tensors are left out of the unit of the others, so that its segments begin within slices.
TEST(Norm, CountsPositionsInTheUnitWhereItHasGaps) {
  const Layout layout = layout_of({700, 3, 1, 5000, 2, 77, 5, 9001, 4});
  const Numbers gradient = reference::input("normal").make(layout.dim(), 0, 5);
  Numbers large;
  Numbers small;
  for (const TensorRange& tensor : layout.tensors()) {
    const auto begin = gradient.begin() + static_cast<std::ptrdiff_t>(tensor.begin);
    Numbers& unit = tensor.size < 10 ? small : large;
    unit.insert(unit.end(), begin, begin + static_cast<std::ptrdiff_t>(tensor.size));
  }
  for (const Machine& machine : machines()) {
    const AtLevel level(machine.simd);
    const SifterContext context{.layout = layout, .pool = pool_of(machine.threads)};
    Sifter sends_small("threshold:lambda=1e30,dense_below=10", "ef", context);
    SparseVector sent;
    sends_small.sift(gradient, sent);
    const double all = slow_norm2(large) + slow_norm2(small);
    EXPECT_TRUE(same_bits(sends_small.stats().sent_norm2, slow_norm2(small)));
    EXPECT_TRUE(same_bits(sends_small.stats().memory_norm2, all - slow_norm2(small)));

    Sifter sends_all("threshold:lambda=0,dense_below=10", "ef", context);
    sends_all.sift(gradient, sent);
    EXPECT_TRUE(same_bits(sends_all.stats().sent_norm2, slow_norm2(gradient)));
    EXPECT_EQ(sends_all.stats().memory_norm2, 0);
  }
}

// 4096 * 4096 entries make a second level; tile sums alone are tested, for the sake of time.
TEST(Norm, AddsTilesByTheSameTree) {
  for (const std::size_t n : {1U, 2U, 4096U, 4097U, 10'000U}) {
    std::vector<double> tiles;
    for (std::size_t i = 0; i < n; ++i) tiles.push_back(1.0 / static_cast<double>(i + 1));
    std::vector<double> slow = tiles;
    while (slow.size() > 1) {
      std::vector<double> sums;
      for (std::size_t begin = 0; begin < slow.size(); begin += 4096) sums.push_back(of_tile(slow, begin));
      slow = sums;
    }
    EXPECT_TRUE(same_bits(kernels::sum_tiles(tiles.data(), n), slow[0])) << n;
  }
}

}  // namespace
}  // namespace sparsewire::norm_test
