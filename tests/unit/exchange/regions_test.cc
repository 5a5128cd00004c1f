// The regions that entries belong to.
#include "exchange/regions.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "kernels/regions.h"
#include "kernels/simd.h"
#include "merge/merger.h"
#include "reference/inputs.h"
#include "unit/bits.h"
#include "unit/machines.h"

namespace sparsewire::regions_test {
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

// Of any number of entries, and of those at the end of the largest model.
TEST(Regions, AreTheSameForOneEntryAndForManyAtEverySimdLevel) {
  reference::Random random(kSeed);
  for (const std::uint32_t ranks : {1U, 2U, 3U, 16U, 17U, 1000U, 65535U, 65536U}) {
    const kernels::RegionMap map(ranks);
    for (const std::string& level : kernels::simd_levels()) {
      const AtLevel at(level);
      for (const std::size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 33U, 1000U}) {
        SCOPED_TRACE(::testing::Message() << ranks << " " << level << " " << size);
        std::vector<std::uint32_t> indices(size);
        for (std::uint32_t& index : indices) {
          index = random.below(4) == 0 ? 0xFFFFFFFEU - static_cast<std::uint32_t>(random.below(3))
                                       : static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32));
        }
        std::vector<std::uint16_t> regions(size + 1, 7777);
        std::vector<std::uint32_t> locals(size + 1, 7777);
        kernels::find_owners(map, indices, regions.data(), locals.data());
        for (std::size_t i = 0; i < size; ++i) {
          const kernels::RegionMap::Owner owner = map.owner_of(indices[i]);
          ASSERT_EQ(regions[i], owner.region) << indices[i];
          ASSERT_EQ(locals[i], owner.local) << indices[i];
          ASSERT_EQ(map.global(owner.region, owner.local), indices[i]);
        }
        ASSERT_EQ(regions[size], 7777);
        ASSERT_EQ(locals[size], 7777U);
      }
    }
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
        regions.join(values, joined);
        ASSERT_TRUE(same_bits(std::span<const float>(whole.values), joined));
      }
    }
  }
}

TEST(Regions, SplitAndJoinTheSameOnSeveralThreads) {
  reference::Random random(kSeed);
  constexpr std::uint64_t kDim = 60001;
  for (const double density : {0.5, 2.0}) {
    SparseVector whole = some_entries(kDim, density, random);
    if (density > 1) whole.indices.clear();  // full
    Regions alone(kDim, 5);
    Regions together(kDim, 5, pool_of(3));
    std::vector<SparseVector> expected;
    std::vector<SparseVector> parts;
    for (int again = 0; again < 2; ++again) {
      alone.split(whole, expected);
      together.split(whole, parts);
      ASSERT_EQ(expected, parts);
    }
    std::vector<std::vector<float>> values;
    for (const SparseVector& part : parts) values.push_back(part.values);
    std::vector<float> joined;
    together.join(values, joined);
    ASSERT_TRUE(same_bits(std::span<const float>(whole.values), joined));
  }
}

// Full answers of all regions need no indices and no merge, but give the same bits.
TEST(Regions, UniteFullPartsAsAMergerDoes) {
  reference::Random random(kSeed);
  for (const std::uint64_t dim : {1U, 15U, 16U, 17U, 48U, 777U, 60001U}) {
    for (const int ranks : {2, 3, 5, 8}) {
      for (Pool* const pool : {static_cast<Pool*>(nullptr), pool_of(3)}) {
        SCOPED_TRACE(::testing::Message() << dim << " " << ranks);
        SparseVector whole = some_entries(dim, 2, random);
        whole.indices.clear();  // full
        for (std::size_t i = 0; i < dim; i += 5) whole.values[i] = -0.0F;
        Regions regions(dim, ranks, pool);
        std::vector<SparseVector> parts;
        regions.split(whole, parts);
        ASSERT_TRUE(regions.are_full(parts));
        SparseVector united = some_entries(99, 0.5, random);  // what was there before does not matter
        regions.unite_full(parts, united);
        EXPECT_TRUE(united.is_full());

        for (int r = 0; r < ranks; ++r) regions.make_global(r, parts[static_cast<std::size_t>(r)]);
        EXPECT_FALSE(regions.are_full(parts));
        SparseVector merged;
        Merger().unite(dim, parts, merged);
        ASSERT_EQ(united, merged);
        ASSERT_TRUE(same_bits(std::span<const float>(united.values), merged.values));
      }
    }
  }
}

TEST(Regions, AreNotFullWhereOneLacksAnEntry) {
  Regions regions(100, 3);
  SparseVector whole;
  whole.dim = 100;
  whole.values.assign(100, 1.0F);
  std::vector<SparseVector> parts;
  regions.split(whole, parts);
  ASSERT_TRUE(regions.are_full(parts));
  parts[1].values.pop_back();
  EXPECT_FALSE(regions.are_full(parts));
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

// Slow versions of the mapping, with divisions. They share nothing with Regions.
namespace slow {

std::uint32_t rotation(std::uint32_t group, std::uint32_t ranks) {
  std::uint32_t h = group;
  h ^= h >> 16;
  h *= 0x85EBCA6BU;
  h ^= h >> 13;
  h *= 0xC2B2AE35U;
  h ^= h >> 16;
  return h % ranks;
}

// The region of an entry, and its index there.
std::pair<std::uint32_t, std::uint32_t> owner_of(std::uint32_t index, std::uint32_t ranks) {
  const std::uint32_t block = index / 16;
  const std::uint32_t group = block / ranks;
  return {(block % ranks + rotation(group, ranks)) % ranks, group * 16 + index % 16};
}

std::uint32_t global(std::uint32_t region, std::uint32_t local, std::uint32_t ranks) {
  const std::uint32_t group = local / 16;
  return (group * ranks + (region + ranks - rotation(group, ranks)) % ranks) * 16 + local % 16;
}

}  // namespace slow

// For every number of ranks up to 300 and some up to 1024, over indices up to the largest there can be.
TEST(Regions, AreTheSameAsWithDivisions) {
  reference::Random random(kSeed);
  std::vector<int> counts = {511, 512, 513, 640, 1000, 1023, 1024};
  for (int ranks = 1; ranks <= 300; ++ranks) counts.push_back(ranks);
  for (const int ranks : counts) {
    SCOPED_TRACE(ranks);
    const auto p = static_cast<std::uint32_t>(ranks);
    for (const std::uint64_t dim : {std::uint64_t{1000}, std::uint64_t{100'003}, std::uint64_t{0xFFFFFFFF}}) {
      Regions regions(dim, ranks);
      SparseVector whole;
      whole.dim = dim;
      const auto most = static_cast<std::uint32_t>(dim - 1);
      std::vector<std::uint32_t> indices = {0, most, most / 2};
      for (int i = 0; i < 300; ++i) {
        const auto index = static_cast<std::uint32_t>(random.uniform() * static_cast<double>(dim - 1));
        indices.push_back(index);
        indices.push_back(
            std::min(most, index / (16 * p) * (16 * p)));  // the start of a group, and the entry before it
        if (indices.back() > 0) indices.push_back(indices.back() - 1);
      }
      std::sort(indices.begin(), indices.end());
      indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
      whole.indices = indices;
      for (const std::uint32_t index : indices) whole.values.push_back(static_cast<float>(index % 1000));
      std::vector<SparseVector> expected(p);
      for (const std::uint32_t index : indices) {
        const auto [region, local] = slow::owner_of(index, p);
        ASSERT_EQ(slow::global(region, local, p), index);
        ASSERT_EQ(regions.global(static_cast<int>(region), local), index);
        expected[region].indices.push_back(local);
      }
      std::vector<SparseVector> parts;
      regions.split(whole, parts);
      for (std::uint32_t r = 0; r < p; ++r) {
        ASSERT_EQ(parts[r].indices, expected[r].indices);
        SparseVector part = parts[r];
        regions.make_global(static_cast<int>(r), part);
        ASSERT_EQ(part.dim, dim);
        for (std::size_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(part.indices[i], slow::global(r, parts[r].indices[i], p));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparsewire::regions_test
