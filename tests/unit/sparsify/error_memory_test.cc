// A sample that overestimates the threshold may cost a second pass, but never an entry of the result.
#include "sparsify/error_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "sparsewire/sifter.h"

namespace sparsewire::error_memory_test {
namespace {

constexpr std::size_t kSize = 300'000;
constexpr std::size_t kTop = 100;
constexpr std::size_t kOverflow = 32'768;  // entries that fill the list of candidates for k = 100, in whole pieces

// The entries after the overflow, which raise_threshold() samples.
Unit ahead() {
  Unit rest;
  rest.segments.push_back({.begin = kOverflow, .size = kSize - kOverflow, .position = 0});
  rest.size = kSize - kOverflow;
  return rest;
}

// Which of the entries [begin, end) a sample of `unit` reads, found by setting one at a time to 1. For k = 1 the sample
// returns the fifth largest magnitude; four sampled entries elsewhere are 1, so it returns 1 if the entry under test is
// sampled too.
std::vector<std::size_t> sampled(const Unit& unit, std::size_t begin, std::size_t end) {
  constexpr std::size_t kStretch = 64;  // one position is sampled in each
  ErrorMemory memory(kSize);
  memory.write(kOverflow, std::vector<float>(4 * kStretch, 1.0F));
  const float one = 1;
  const float zero = 0;
  std::vector<std::size_t> found;
  for (std::size_t i = begin; i < end; ++i) {
    memory.write(i, {&one, 1});
    memory.begin_units();
    if (memory.together().sample(unit, nullptr, 1) == kernels::key_of(1.0F)) found.push_back(i);
    memory.write(i, {&zero, 1});
  }
  return found;
}

TEST(ErrorMemory, FindsWhatAMisleadingSampleHides) {
  const std::vector<std::size_t> traps = sampled(ahead(), 100'000, 101'600);
  ASSERT_GE(traps.size(), 20U);
  ASSERT_LT(traps.size(), kTop);

  // A first step with small numbers, so that the guess for the second step is far too low.
  Sifter sifter("topk:k=100", "ef", {.layout = kSize});
  std::vector<float> gradient(kSize, 0.001F);
  SparseVector sent;
  sifter.sift(gradient, sent);
  // In the second step every entry is a candidate until the list overflows. The sample of the remaining entries then
  // reads the traps (100), but none of the entries of size 10, which belong to the result as well.
  sifter.write_memory(std::vector<float>(kSize));
  std::fill(gradient.begin(), gradient.end(), 1.0F);
  for (const std::size_t trap : traps) gradient[trap] = 100.0F;
  std::vector<std::uint32_t> expected(traps.begin(), traps.end());
  for (std::size_t i = 200'000; expected.size() < kTop; ++i) {
    if (!sampled(ahead(), i, i + 1).empty()) continue;
    gradient[i] = 10.0F;
    expected.push_back(static_cast<std::uint32_t>(i));
  }
  std::sort(expected.begin(), expected.end());
  sifter.sift(gradient, sent);
  EXPECT_EQ(sent.indices, expected);
}

}  // namespace
}  // namespace sparsewire::error_memory_test
