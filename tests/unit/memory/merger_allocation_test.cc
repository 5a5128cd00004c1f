// In the steady state a sum of sparse vectors allocates nothing, although every step has other entries.
#include <gtest/gtest.h>

#include "merge/merger.h"
#include "reference/inputs.h"
#include "unit/machines.h"
#include "unit/memory/counted_memory.h"

namespace sparsewire::merger_allocation_test {
namespace {

constexpr std::uint64_t kDim = 300'007;
constexpr int kWarmUp = 5;
constexpr int kMeasured = 20;

// Entries of which each vector has about every tenth: those of its own, or any.
void fill(std::vector<SparseVector>& vectors, bool disjoint, reference::Random& random) {
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    vectors[v].clear(kDim);
    for (std::uint32_t i = 0; i < kDim; ++i) {
      if (disjoint ? i / 16 % vectors.size() != v : random.below(10) != 0) continue;
      if (disjoint && random.below(3) == 0) continue;
      vectors[v].indices.push_back(i);
      vectors[v].values.push_back(1.0F);
    }
  }
}

long allocations_of(bool disjoint, int threads) {
  reference::Random random(11);
  std::vector<SparseVector> vectors(7);
  for (SparseVector& vector : vectors) {  // so that only the merger can allocate
    vector.indices.reserve(kDim);
    vector.values.reserve(kDim);
  }
  Merger merger(pool_of(threads));
  SparseVector total;
  long before = 0;
  for (int step = 0; step < kWarmUp + kMeasured; ++step) {
    if (step == kWarmUp) before = counted_memory.allocations.load();
    fill(vectors, disjoint, random);
    if (disjoint) {
      merger.unite(kDim, vectors, total);
    } else {
      merger.sum(kDim, vectors, {}, total);
    }
  }
  return counted_memory.allocations.load() - before;
}

TEST(AllocationsOfAMerger, AreNoneInTheSteadyState) {
  for (const bool disjoint : {false, true}) {
    for (const int threads : {1, 3, 8}) EXPECT_EQ(allocations_of(disjoint, threads), 0) << disjoint << ", " << threads;
  }
}

}  // namespace
}  // namespace sparsewire::merger_allocation_test
