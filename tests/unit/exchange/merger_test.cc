// Sums of sparse vectors, on one thread and on several.
#include "merge/merger.h"

#include <gtest/gtest.h>

#include <array>
#include <iterator>

#include "effort.h"
#include "merge/cuts.h"
#include "reference/inputs.h"
#include "reference/sums.h"
#include "unit/bits.h"
#include "unit/machines.h"

namespace sparsewire::merger_test {
namespace {

constexpr std::uint64_t kSeed = 5;

// The entries of [begin, end) with the probability `density`, zeros of both signs among them.
SparseVector some_entries(std::uint64_t dim, double density, reference::Random& random, std::uint64_t begin = 0,
                          std::uint64_t end = ~std::uint64_t{0}) {
  SparseVector vector;
  vector.dim = dim;
  for (std::uint64_t i = begin; i < std::min(dim, end); ++i) {
    if (random.uniform() >= density) continue;
    vector.indices.push_back(static_cast<std::uint32_t>(i));
    const std::size_t kind = random.below(16);
    vector.values.push_back(kind == 0 ? -0.0F : kind < 3 ? 0.0F : static_cast<float>(random.normal()));
  }
  return vector;
}

// Around the size of a window, with vectors that have none, few, many or all entries, zeros of both signs among them.
TEST(Merger, AgreesWithAMap) {
  reference::Random random(kSeed);
  Merger merger;
  SparseVector total;
  for (const std::uint64_t dim : {0U, 1U, 63U, 64U, 65U, 1000U, 65535U, 65536U, 65537U, 131072U, 200003U}) {
    for (int round = 0; round < (kSlowBuild ? 4 : 12); ++round) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << ", round " << round);
      std::vector<SparseVector> vectors;
      std::vector<float> weights;
      for (std::size_t v = random.below(6); v-- > 0;) {
        vectors.push_back(some_entries(dim, std::array{0.0, 0.0005, 0.02, 0.4, 2.0}[random.below(5)], random));
        SparseVector& vector = vectors.back();
        if (vector.size() == dim && random.below(2) == 0) vector.indices.clear();
        weights.push_back(static_cast<float>(random.uniform()));
      }
      for (const bool has_weights : {true, false}) {
        const std::vector<float> factors = has_weights ? weights : std::vector<float>();
        merger.sum(dim, vectors, factors, total);
        ASSERT_TRUE(total.is_valid());
        ASSERT_TRUE(same_bits(reference::sum_of(dim, vectors, factors), total));
      }
    }
  }
}

// Around the size of a window, which is 16384 entries, full vectors and weights of 0 among them.
TEST(Merger, TakesTheMeanOfThoseWhoHaveAnEntry) {
  reference::Random random(kSeed + 1);
  Pool pool(3);
  Merger merger;
  Merger threaded(&pool);
  SparseVector mean;
  for (const std::uint64_t dim : {0U, 1U, 64U, 500U, 16383U, 16384U, 16385U, 70001U}) {
    for (int round = 0; round < (kSlowBuild ? 4 : 12); ++round) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << ", round " << round);
      std::vector<SparseVector> vectors;
      std::vector<float> weights;
      for (std::size_t v = random.below(6); v-- > 0;) {
        // The reference looks at every pair of entries.
        const double few = std::min(0.5, 500.0 / static_cast<double>(dim + 1));
        const double density = dim > 1000 ? few : std::array{0.0, 0.02, 0.4, 2.0}[random.below(4)];
        vectors.push_back(some_entries(dim, density, random));
        SparseVector& vector = vectors.back();
        if (vector.size() == dim && random.below(2) == 0) vector.indices.clear();
        weights.push_back(random.below(5) == 0 ? 0.0F : static_cast<float>(random.uniform()));
      }
      const SparseVector expected = reference::mean_of_senders(dim, vectors, weights);
      merger.mean_of_senders(dim, vectors, weights, mean);
      ASSERT_TRUE(same_bits(expected, mean));
      threaded.mean_of_senders(dim, vectors, weights, mean);
      ASSERT_TRUE(same_bits(expected, mean));
    }
  }
}

TEST(Merger, GivesPlusZeroForMinusZero) {
  Merger merger;
  SparseVector total;
  const std::vector<SparseVector> vectors = {{.dim = 9, .indices = {4}, .values = {-0.0F}, .draw = {}}};
  merger.sum(9, vectors, {}, total);
  ASSERT_EQ(total.size(), 1U);
  EXPECT_EQ(bits_of(total.values[0]), 0U);
}

TEST(Merger, AddsInTheOrderGiven) {
  Merger merger;
  SparseVector total;
  std::vector<SparseVector> vectors;
  for (const float value : {1e8F, 1.0F, -1e8F})
    vectors.push_back({.dim = 2, .indices = {1}, .values = {value}, .draw = {}});
  merger.sum(2, vectors, {}, total);
  EXPECT_EQ(total.values[0], 0.0F);
  std::swap(vectors[1], vectors[2]);
  merger.sum(2, vectors, {}, total);
  EXPECT_EQ(total.values[0], 1.0F);
}

TEST(Merger, ReachesTheEndOfTheLargestModel) {
  constexpr std::uint64_t kDim = 0xFFFFFFFF;
  Merger merger;
  SparseVector total;
  const std::vector<SparseVector> vectors = {{.dim = kDim, .indices = {7, 0xFFFFFFFEU}, .values = {1, 2}, .draw = {}},
                                             {.dim = kDim, .indices = {0x80000000U}, .values = {3}, .draw = {}}};
  merger.sum(kDim, vectors, {}, total);
  EXPECT_EQ(total.indices, (std::vector<std::uint32_t>{7, 0x80000000U, 0xFFFFFFFEU}));
  EXPECT_EQ(total.values, (std::vector<float>{1, 3, 2}));
}

// ---- On several threads ----

struct Case {
  const char* name;
  std::uint64_t dim;
  std::vector<SparseVector> vectors;
};

// Each is large enough for several threads.
std::vector<Case> large_cases() {
  reference::Random random(kSeed);
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::uint64_t dim, std::size_t count, const auto& make) {
    cases.push_back({name, dim, {}});
    for (std::size_t v = 0; v < count; ++v) cases.back().vectors.push_back(make(v));
  };
  const std::uint64_t dim = 300'007;
  const SparseVector same = some_entries(dim, 0.1, random);
  const auto sparse = [&](std::size_t) { return some_entries(dim, 0.07, random); };
  add("independent supports", dim, 7, sparse);
  add("equal supports", dim, 5, [&](std::size_t) { return same; });
  add("one vector", dim, 1, [&](std::size_t) { return same; });
  add("most vectors empty", dim, 5, [&](std::size_t v) { return v == 3 ? same : some_entries(dim, 0, random); });
  add("all entries in one window", dim, 9, [&](std::size_t) { return some_entries(dim, 0.3, random, 70'000, 90'000); });
  add("all entries in three places", dim, 20'000, [&](std::size_t) {
    SparseVector few = {.dim = dim, .indices = {131'071, 131'072, 131'073}, .values = {1, -2, 3}, .draw = {}};
    return few;
  });
  add("each vector in a range of its own", dim, 6,
      [&](std::size_t v) { return some_entries(dim, 0.5, random, v * 50'000, v * 50'000 + 50'000); });
  add("half of the entries at the end", dim, 4, [&](std::size_t v) {
    return v % 2 == 0 ? some_entries(dim, 0.9, random, dim - 20'000) : some_entries(dim, 0.05, random);
  });
  add("a union that is full", 65'536, 3, [&](std::size_t) {
    SparseVector all = some_entries(65'536, 2, random);  // with indices
    all.indices.erase(all.indices.begin() + 7);
    all.values.erase(all.values.begin() + 7);
    return all;
  });
  cases.back().vectors.push_back({.dim = 65'536, .indices = {7}, .values = {0.5F}, .draw = {}});
  add("some vectors full", dim, 4, [&](std::size_t v) {
    SparseVector vector = some_entries(dim, v % 2 == 0 ? 2 : 0.1, random);
    if (v == 2) vector.indices.clear();
    return vector;
  });
  add("few entries in a large model", 40'000'003, 3, [&](std::size_t v) {
    SparseVector few;
    few.dim = 40'000'003;
    for (std::uint32_t i = static_cast<std::uint32_t>(v); i < few.dim; i += 40'009) {
      few.indices.push_back(i);
      few.values.push_back(1.5F);
    }
    return few;
  });
  return cases;
}

TEST(MergerOnSeveralThreads, AgreesWithAMap) {
  reference::Random random(kSeed);
  for (const Case& one : large_cases()) {
    std::vector<float> weights;
    for (std::size_t v = 0; v < one.vectors.size(); ++v) weights.push_back(static_cast<float>(random.uniform()));
    for (const std::vector<float>& factors : {weights, std::vector<float>()}) {
      const SparseVector expected = reference::sum_of(one.dim, one.vectors, factors);
      for (const int threads : {1, 2, 3, 5, 8, 16}) {
        SCOPED_TRACE(::testing::Message() << one.name << ", " << threads << " threads");
        Merger merger(pool_of(threads));
        SparseVector total;
        for (int again = 0; again < 2; ++again) {
          merger.sum(one.dim, one.vectors, factors, total);
          ASSERT_TRUE(total.is_valid());
          ASSERT_TRUE(same_bits(expected, total));
          ASSERT_EQ(expected.is_full(), total.is_full());
        }
      }
    }
  }
}

TEST(MergerOnSeveralThreads, GivesTheSameBitsAtEverySimdLevel) {
  const std::vector<Case> cases = large_cases();
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(machine);
    const AtLevel level(machine.simd);
    Merger merger(pool_of(machine.threads));
    SparseVector total;
    merger.sum(cases[0].dim, cases[0].vectors, {}, total);
    ASSERT_TRUE(same_bits(reference::sum_of(cases[0].dim, cases[0].vectors, {}), total));
  }
}

// Vectors that share no entry: every entry belongs to one of them.
TEST(MergerOnSeveralThreads, UnitesDisjointVectors) {
  reference::Random random(kSeed);
  for (const std::uint64_t dim : {0U, 1U, 5U, 65'537U, 400'009U}) {
    for (const double density : {0.0, 0.01, 0.4, 2.0}) {
      std::vector<SparseVector> vectors(5);
      const SparseVector all = some_entries(dim, density, random);
      for (SparseVector& vector : vectors) vector.dim = dim;
      for (std::size_t i = 0; i < all.size(); ++i) {
        SparseVector& owner = vectors[all.indices[i] / 16 % 5];
        owner.indices.push_back(all.indices[i]);
        owner.values.push_back(all.values[i]);
      }
      const SparseVector expected = reference::sum_of(dim, vectors, {});
      for (const int threads : {1, 2, 3, 5, 8, 16}) {
        SCOPED_TRACE(::testing::Message() << dim << ", " << density << ", " << threads << " threads");
        Merger merger(pool_of(threads));
        SparseVector total;
        for (int again = 0; again < 2; ++again) {
          merger.unite(dim, vectors, total);
          ASSERT_TRUE(same_bits(expected, total));
          ASSERT_EQ(expected.is_full(), total.is_full());
        }
      }
    }
  }
}

// What one sum leaves behind does not change the next, however many threads each of them uses.
TEST(MergerOnSeveralThreads, SumsLargeAndSmallInTurn) {
  const std::vector<Case> cases = large_cases();
  const std::vector<SparseVector> small = {{.dim = 9, .indices = {4}, .values = {2}, .draw = {}},
                                           {.dim = 9, .indices = {4, 8}, .values = {1, 1}, .draw = {}}};
  Merger merger(pool_of(3));
  SparseVector total;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    merger.sum(one.dim, one.vectors, {}, total);
    ASSERT_TRUE(same_bits(reference::sum_of(one.dim, one.vectors, {}), total));
    merger.sum(9, small, {}, total);
    ASSERT_TRUE(same_bits(reference::sum_of(9, small, {}), total));
  }
}

// ---- Cuts ----

TEST(Cuts, DivideTheEntriesEvenly) {
  for (const Case& one : large_cases()) {
    SCOPED_TRACE(one.name);
    std::size_t entries = 0;
    for (const SparseVector& vector : one.vectors) entries += vector.size();
    constexpr std::size_t kParts = 16;
    const std::size_t tolerance = entries / kParts / 32;
    std::uint64_t before = 0;
    for (std::size_t part = 1; part < kParts; ++part) {
      const std::size_t wanted = entries * part / kParts;
      const std::uint64_t cut = find_cut(one.dim, one.vectors, wanted, tolerance);
      ASSERT_GE(cut, before);
      ASSERT_LE(cut, one.dim);
      before = cut;
      std::size_t below = 0;
      std::size_t at_the_cut = 0;  // entries with the index before the cut
      for (const SparseVector& vector : one.vectors) {
        below += entries_below(vector, cut);
        at_the_cut += entries_below(vector, cut) - entries_below(vector, cut - 1);
      }
      EXPECT_LE(below, wanted + std::max(tolerance, at_the_cut));
      EXPECT_GE(below + tolerance, wanted);
    }
  }
}

TEST(Cuts, CountEntriesBelowAnIndex) {
  const SparseVector sparse = {.dim = 10, .indices = {2, 3, 9}, .values = {1, 1, 1}, .draw = {}};
  const SparseVector full = {.dim = 3, .indices = {}, .values = {1, 1, 1}, .draw = {}};
  const std::vector<std::size_t> expected = {0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 3};
  for (std::uint64_t i = 0; i < expected.size(); ++i) EXPECT_EQ(entries_below(sparse, i), expected[i]) << i;
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(entries_below(full, i), i);
}

}  // namespace
}  // namespace sparsewire::merger_test
