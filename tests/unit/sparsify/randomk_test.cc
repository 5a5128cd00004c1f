// Random-k: a uniform draw without replacement, which anyone who knows the seed can repeat.
#include <gtest/gtest.h>

#include "unit/bare_sparsifier.h"
#include "unit/one_sift.h"
#include "unit/statistics.h"
#include "unit/walk.h"

namespace sparsewire::randomk_test {
namespace {

TEST(RandomK, SendsExactlyKDistinctEntriesZerosIncluded) {
  for (const std::size_t n : {1U, 2U, 3U, 10U, 100U, 4099U}) {
    for (const std::size_t k : {std::size_t{1}, n / 4, n / 2, n / 2 + 1, n - 1, n}) {
      if (k == 0 || k > n) continue;
      SCOPED_TRACE(::testing::Message() << "n " << n << ", k " << k);
      const Indices sent = sent_once("randomk:k=" + std::to_string(k), Numbers(n));
      ASSERT_EQ(sent.size(), k);
      for (std::size_t i = 0; i < k; ++i) {
        ASSERT_LT(sent[i], n);
        if (i > 0) {
          ASSERT_LT(sent[i - 1], sent[i]);
        }
      }
    }
  }
}

TEST(RandomK, TakesThePositionsOfTheDocumentedDraws) {
  // With counter and key 0 the first draw is e169c58d6627e8d5, which is position 88 of 100; the second is
  // 9b00dbd8bc57ac4c, position 60.
  EXPECT_EQ(sent_once("randomk:k=2", Numbers(100)), (Indices{60, 88}));
  Indices others;
  for (std::uint32_t i = 0; i < 100; ++i) {
    if (i != 60 && i != 88) others.push_back(i);
  }
  EXPECT_EQ(sent_once("randomk:k=98", Numbers(100)), others);
}

TEST(RandomK, DoesNotLookAtTheNumbers) {
  const Indices sent = sent_once("randomk:ratio=0.1", Numbers(500));
  for (const reference::Input& input : reference::catalogue()) {
    EXPECT_EQ(sent_once("randomk:ratio=0.1", input.make(500, 0, 1)), sent) << input.name;
  }
}

TEST(RandomK, DrawsTheSameOnEveryWorkerWhenShared) {
  const SifterContext one{.layout = 1000, .rank = 1, .ranks = 4, .seed = 9};
  SifterContext two = one;
  two.rank = 2;
  const Numbers zeros(1000);
  EXPECT_EQ(sent_once("randomk:k=20,shared=true", zeros, one), sent_once("randomk:k=20,shared=true", zeros, two));
  EXPECT_NE(sent_once("randomk:k=20", zeros, one), sent_once("randomk:k=20", zeros, two));
  EXPECT_EQ(sent_once("randomk:k=20,shared=false", zeros, one), sent_once("randomk:k=20", zeros, one));
  two.role = Role::server;
  EXPECT_NE(sent_once("randomk:k=20,shared=true", zeros, one), sent_once("randomk:k=20,shared=true", zeros, two));
}

TEST(RandomK, PrefersTheSeedOfItsSpec) {
  const Numbers zeros(1000);
  const SifterContext one{.layout = 1000, .seed = 1};
  const SifterContext two{.layout = 1000, .seed = 2};
  EXPECT_NE(sent_once("randomk:k=20", zeros, one), sent_once("randomk:k=20", zeros, two));
  EXPECT_EQ(sent_once("randomk:k=20,seed=2", zeros, one), sent_once("randomk:k=20", zeros, two));
  EXPECT_EQ(sent_once("randomk:k=20,seed=18446744073709551615", zeros, one),
            sent_once("randomk:k=20", zeros, {.layout = 1000, .seed = ~std::uint64_t{0}}));
}

TEST(RandomK, DrawsDifferentlyInEveryStepAndUnit) {
  const std::unique_ptr<BareSparsifier> sparsifier = make_bare("randomk:k=20", {.layout = 1000});
  const Numbers zeros(1000);
  EXPECT_NE(sift_afresh(*sparsifier, zeros).indices, sift_afresh(*sparsifier, zeros).indices);

  const SifterContext layers{.layout = layout_of({500, 500}), .scope = Scope::layer};
  const Indices sent = sent_once("randomk:k=20", zeros, layers);
  ASSERT_EQ(sent.size(), 20U);
  Indices second_unit(sent.begin() + 10, sent.end());
  for (std::uint32_t& i : second_unit) i -= 500;
  EXPECT_NE(Indices(sent.begin(), sent.begin() + 10), second_unit);
}

TEST(RandomK, IncludesEveryEntryEquallyOften) {
  constexpr std::size_t kSize = 60;
  constexpr int kDraws = 20000;
  const Numbers zeros(kSize);
  for (const std::size_t k : {1U, 7U, 30U, 31U, 57U}) {
    SCOPED_TRACE(k);
    Inclusion inclusion(kSize);
    const std::unique_ptr<BareSparsifier> sparsifier =
        make_bare("randomk:k=" + std::to_string(k), {.layout = kSize, .seed = 3});
    for (int draw = 0; draw < kDraws; ++draw) {
      const Indices sent = sift_afresh(*sparsifier, zeros).indices;
      inclusion.add({sent.begin(), sent.end()});
    }
    EXPECT_LT(inclusion.unevenness(), 5);
    if (k > 1) {
      EXPECT_LT(inclusion.unevenness_of_pairs(), 10) << "pairs are as likely as chance makes them";
    }
  }
}

TEST(RandomK, AgreesWithTheReferenceForEveryCount) {
  for (const char* keys : {"k=1", "k=2", "k=128", "k=129", "k=256", "k=257", "ratio=0.3,seed=77,shared=true"}) {
    const std::string spec = std::string("randomk:") + keys;
    ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input("normal"), {.layout = 257, .rank = 2, .ranks = 3}, 5));
    const SifterContext layers{.layout = layout_of({100, 0, 50, 7, 100}), .scope = Scope::layer, .seed = 4};
    ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input("normal"), layers, 5));
  }
}

TEST(RandomK, DrawsPositionsWithinTheEntriesThatAreNotDense) {
  const SifterContext context{.layout = layout_of({100, 5, 200, 3, 4, 300}), .seed = 8};
  for (const char* spec : {"randomk:ratio=0.1,dense_below=10", "randomk:k=500,dense_below=10"}) {
    ASSERT_NO_FATAL_FAILURE(check_input(spec, reference::input("normal"), context, 4));
  }
}

}  // namespace
}  // namespace sparsewire::randomk_test
