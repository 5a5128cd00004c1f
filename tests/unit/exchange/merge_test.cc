// Sums of sparse vectors, and the regions that entries belong to.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "exchange/regions.h"
#include "merge/merger.h"
#include "reference/inputs.h"
#include "unit/bits.h"

namespace sparsewire::merge_test {
namespace {

constexpr std::uint64_t kSeed = 5;

// Every index is in one region, indices ascend in each region, and sizes differ by at most a block.
void check_regions(std::uint64_t dim, int ranks) {
  SCOPED_TRACE(::testing::Message() << "dim " << dim << ", ranks " << ranks);
  const Regions regions(dim, ranks);
  std::vector<int> owners(dim, -1);
  std::uint64_t smallest = dim;
  std::uint64_t largest = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::uint64_t size = regions.size(r);
    smallest = std::min(smallest, size);
    largest = std::max(largest, size);
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint32_t index = regions.global(r, i);
      ASSERT_LT(index, dim);
      ASSERT_EQ(owners[index], -1) << index;
      if (i > 0) {
        ASSERT_GT(index, regions.global(r, i - 1));
      }
      owners[index] = r;
    }
  }
  ASSERT_EQ(std::count(owners.begin(), owners.end(), -1), 0);
  ASSERT_LE(largest - smallest, 16U);
}

TEST(Regions, HoldEveryEntryOnce) {
  for (std::uint64_t dim = 0; dim <= 200; ++dim) {
    for (int ranks = 1; ranks <= 9; ++ranks) ASSERT_NO_FATAL_FAILURE(check_regions(dim, ranks));
  }
  for (const std::uint64_t dim : {4095U, 4096U, 4097U, 65537U, 1000003U}) {
    for (const int ranks : {1, 2, 3, 7, 8, 16, 64, 1000}) ASSERT_NO_FATAL_FAILURE(check_regions(dim, ranks));
  }
}

TEST(Regions, ReachTheEndOfTheLargestModel) {
  constexpr std::uint64_t kDim = 0xFFFFFFFFU;
  for (const int ranks : {1, 3, 64}) {
    const Regions regions(kDim, ranks);
    std::uint64_t sum = 0;
    std::uint32_t last = 0;
    for (int r = 0; r < ranks; ++r) {
      sum += regions.size(r);
      last = std::max(last, regions.global(r, static_cast<std::uint32_t>(regions.size(r) - 1)));
    }
    EXPECT_EQ(sum, kDim) << ranks;
    EXPECT_EQ(last, kDim - 1) << ranks;
  }
}

// A share of `density` of the entries of a vector. With 1 all entries, with their indices.
SparseVector some_entries(std::uint64_t dim, double density, reference::Random& random) {
  SparseVector vector;
  vector.dim = dim;
  for (std::uint32_t i = 0; i < dim; ++i) {
    if (random.uniform() >= density) continue;
    vector.indices.push_back(i);
    vector.values.push_back(random.below(8) == 0 ? 0.0F : static_cast<float>(random.normal()));
  }
  return vector;
}

TEST(Regions, SplitAndJoinAreInverse) {
  reference::Random random(kSeed);
  for (const std::uint64_t dim : {0U, 1U, 15U, 16U, 17U, 777U, 5000U}) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      for (const double density : {0.0, 0.05, 0.5, 1.0, 2.0}) {
        SCOPED_TRACE(::testing::Message() << dim << " " << ranks << " " << density);
        SparseVector whole = some_entries(dim, density, random);
        if (density > 1) whole.indices.clear();  // full
        Regions regions(dim, ranks);
        std::vector<SparseVector> parts(3);
        regions.split(whole, parts);
        ASSERT_EQ(parts.size(), static_cast<std::size_t>(ranks));
        std::map<std::uint32_t, float> seen;
        std::vector<std::vector<float>> values;
        for (int r = 0; r < ranks; ++r) {
          const SparseVector& part = parts[static_cast<std::size_t>(r)];
          ASSERT_EQ(part.dim, regions.size(r));
          ASSERT_TRUE(part.is_valid());
          if (whole.is_full() && part.dim != 0) {
            ASSERT_TRUE(part.is_full());
          }
          for (std::size_t i = 0; i < part.size(); ++i) seen[regions.global(r, part.index(i))] = part.values[i];
          values.push_back(part.values);
        }
        ASSERT_EQ(seen.size(), whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(seen.at(whole.index(i)), whole.values[i]);
        std::vector<float> joined;
        regions.join(whole, values, joined);
        ASSERT_TRUE(same_bits(std::span<const float>(whole.values), joined));
      }
    }
  }
}

TEST(Regions, SpreadColumnsEvenly) {
  constexpr std::uint64_t kDim = 1U << 20;
  constexpr int kCount = 8;
  const Regions regions(kDim, kCount);
  std::vector<int> owner(kDim);
  for (int r = 0; r < kCount; ++r) {
    for (std::uint32_t i = 0; i < regions.size(r); ++i) owner[regions.global(r, i)] = r;
  }
  for (const std::uint32_t stride : {128U, 256U, 512U, 1024U}) {  // one column of a matrix with so many columns
    std::vector<int> hits(kCount);
    for (std::uint32_t i = 5; i < kDim; i += stride) ++hits[static_cast<std::size_t>(owner[i])];
    const auto mean = static_cast<double>(kDim) / stride / kCount;
    for (const int hit : hits) EXPECT_NEAR(hit, mean, 6 * std::sqrt(mean)) << stride;
  }
}

TEST(Merger, AgreesWithAMap) {
  reference::Random random(kSeed);
  for (const std::uint64_t dim : {0U, 1U, 63U, 64U, 65U, 1000U}) {
    Merger merger(dim);
    for (int round = 0; round < 40; ++round) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << ", round " << round);
      std::map<std::uint32_t, float> sums;
      bool is_full = false;
      for (std::size_t v = random.below(5); v-- > 0;) {
        SparseVector vector = some_entries(dim, std::array{0.0, 0.02, 0.4, 2.0}[random.below(4)], random);
        if (vector.size() == dim && random.below(2) == 0) vector.indices.clear();
        is_full = is_full || vector.is_full();
        const auto weight = static_cast<float>(random.uniform());
        merger.add(vector, weight);
        for (std::size_t i = 0; i < vector.size(); ++i) {
          const float weighted = weight * vector.values[i];
          sums[vector.index(i)] += weighted;
        }
      }
      SparseVector expected;
      expected.dim = dim;
      for (const auto& [index, sum] : sums) expected.indices.push_back(index), expected.values.push_back(sum);
      if (is_full || expected.size() == dim) expected.indices.clear();
      SparseVector total;
      total.values = {3};
      merger.copy_to(total);
      ASSERT_TRUE(total.is_valid());
      ASSERT_TRUE(same_bits(expected, total));
      for (std::uint32_t i = 0; i < dim; ++i) ASSERT_EQ(merger.sums()[i], sums.count(i) != 0 ? sums.at(i) : 0.0F);
      merger.clear();
      for (const float sum : merger.sums()) ASSERT_EQ(bits_of(sum), 0U);
      merger.copy_to(total);
      ASSERT_EQ(total.size(), 0U);
    }
  }
}

TEST(Merger, AddsInTheOrderGiven) {
  Merger merger(1);
  for (const float value : {1e8F, 1.0F, -1e8F})
    merger.add({.dim = 1, .indices = {0}, .values = {value}, .draw = {}}, 1);
  EXPECT_EQ(merger.sums()[0], 0.0F);
  merger.clear();
  for (const float value : {1e8F, -1e8F, 1.0F})
    merger.add({.dim = 1, .indices = {0}, .values = {value}, .draw = {}}, 1);
  EXPECT_EQ(merger.sums()[0], 1.0F);
}

}  // namespace
}  // namespace sparsewire::merge_test
