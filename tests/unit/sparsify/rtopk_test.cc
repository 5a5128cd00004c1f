// rTop-k sends k random entries of the r largest. The draw is compared with the reference bit by bit, and tested as a
// distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "unit/bare_sparsifier.h"
#include "unit/one_sift.h"
#include "unit/statistics.h"
#include "unit/walk.h"

namespace sparsewire::rtopk_test {
namespace {

constexpr std::size_t kSize = 200;
constexpr std::size_t kTake = 10;
constexpr std::size_t kFrom = 40;
constexpr int kDraws = 20000;
constexpr const char* kSpec = "rtopk:k=10,r=4";

// Numbers with different magnitudes; the r largest have a rank by magnitude below kFrom.
Numbers numbers() { return reference::input("heavy_tailed").make(kSize, 0, 17); }

std::vector<std::size_t> ranks_by_magnitude(const Numbers& p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return std::fabs(p[i]) > std::fabs(p[j]); });
  std::vector<std::size_t> rank(p.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

TEST(RTopK, IsTopKWhenRIsK) {
  const Numbers p = numbers();
  EXPECT_EQ(sent_once("rtopk:k=10,r=1", p), sent_once("topk:k=10", p));
}

TEST(RTopK, TakesTwiceKWhenRIsNotGiven) {
  const Numbers p = numbers();
  EXPECT_EQ(sent_once("rtopk:k=10", p), sent_once("rtopk:k=10,r=2", p));
}

TEST(RTopK, SendsKOfTheRLargest) {
  const Numbers p = numbers();
  const std::vector<std::size_t> rank = ranks_by_magnitude(p);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Indices sent = sent_once(kSpec, p, {.layout = kSize, .seed = seed});
    ASSERT_EQ(sent.size(), kTake);
    for (const std::uint32_t i : sent) ASSERT_LT(rank[i], kFrom);
  }
}

TEST(RTopK, SendsAllWhenThereAreAtMostK) {
  Numbers p(kSize);
  p[3] = 1;
  p[70] = -1e-40F;
  EXPECT_EQ(sent_once(kSpec, p), (Indices{3, 70}));
}

TEST(RTopK, DrawsDifferentlyForEverySeedRankRoleAndStep) {
  const Numbers p = numbers();
  const SifterContext here{.layout = kSize, .rank = 1, .ranks = 4, .seed = 5};
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(kSpec, here);
  const Indices first = sift_afresh(*sparsifier, p).indices;
  EXPECT_EQ(sent_once(kSpec, p, here), first) << "the same context gives the same draw";
  const Indices second = sift_afresh(*sparsifier, p).indices;
  EXPECT_NE(second, first);
  SifterContext other = here;
  other.first_step = 1;
  EXPECT_EQ(sent_once(kSpec, p, other), second) << "only the step has changed";
  other = here;
  other.rank = 2;
  EXPECT_NE(sent_once(kSpec, p, other), first);
  other = here;
  other.role = Role::server;
  EXPECT_NE(sent_once(kSpec, p, other), first);
  other = here;
  other.seed = 5 + (std::uint64_t{1} << 40U);
  EXPECT_NE(sent_once(kSpec, p, other), first);
}

TEST(RTopK, IncludesEachOfTheRLargestEquallyOften) {
  const Numbers p = numbers();
  const std::vector<std::size_t> rank = ranks_by_magnitude(p);
  Inclusion inclusion(kFrom);
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(kSpec, {.layout = kSize, .seed = 1});
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<std::size_t> drawn;
    for (const std::uint32_t i : sift_afresh(*sparsifier, p).indices) drawn.push_back(rank[i]);
    inclusion.add(drawn);
  }
  EXPECT_LT(inclusion.unevenness(), 5);
  EXPECT_LT(inclusion.unevenness_of_pairs(), 10) << "pairs are as likely as chance makes them";
}

// E ||p - C(p)||^2 = ||p||^2 - k/r * (squared norm of the r largest).
TEST(RTopK, HasTheExpectedSquaredError) {
  const Numbers p = numbers();
  const std::vector<std::size_t> rank = ranks_by_magnitude(p);
  double all = 0;
  double largest = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double square = double{p[i]} * double{p[i]};
    all += square;
    if (rank[i] < kFrom) largest += square;
  }
  const double expected = all - static_cast<double>(kTake) / kFrom * largest;

  const std::unique_ptr<BareSparsifier> sparsifier = make_bare(kSpec, {.layout = kSize, .seed = 2});
  double sum = 0;
  double sum2 = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    Numbers memory(kSize);
    SparseVector out;
    sparsifier->sift(Gradient(p), memory, out);
    const double error = reference::norm2(memory);  // p - C(p)
    sum += error;
    sum2 += error * error;
  }
  const double mean = sum / kDraws;
  const double deviation = std::sqrt((sum2 / kDraws - mean * mean) / kDraws);
  EXPECT_NEAR(mean, expected, 4.5 * deviation);
  EXPECT_LT(deviation, 0.01 * all) << "the bound above is tight";
}

TEST(RTopK, AgreesWithTheReferenceForEveryR) {
  for (const char* keys : {"k=1,r=1", "k=1,r=300", "k=5,r=1.3", "k=100,r=2", "k=100,r=2.57", "k=257,r=1",
                           "k=40,r_ratio=0.5", "k=40,r_ratio=1", "ratio=0.1,r=5,warmup_from=0.4,warmup_steps=3",
                           "ratio=0.1,r_ratio=0.2,warmup_from=0.4,warmup_steps=3"}) {
    for (const char* kind : {"normal", "few_values", "few_non_zeros", "all_equal"}) {
      const std::string spec = std::string("rtopk:") + keys;
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), {.layout = 257, .seed = 3}, 5));
      const SifterContext layers{.layout = layout_of({100, 50, 7, 100}), .scope = Scope::layer, .seed = 4};
      ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input(kind), layers, 5));
    }
  }
}

}  // namespace
}  // namespace sparsewire::rtopk_test
