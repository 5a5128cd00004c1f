// The bits per entry on the wire, compared with the entropy bound. Nothing is timed, so the numbers are the same on
// every machine.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "effort.h"
#include "unit/frames.h"

namespace sparsewire::wire_size_test {
namespace {

constexpr std::uint64_t kDim = 25'000'000;

// Under sanitizers the same limits for fewer ratios.
std::vector<double> random_ratios() {
  if (kSlowBuild) return {0.01, 0.0001};
  return {0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001};
}
std::vector<double> clustered_ratios() {
  if (kSlowBuild) return {0.001};
  return {0.1, 0.01, 0.001};
}

SparseVector with_indices(Indices indices) {
  SparseVector vector;
  vector.dim = kDim;
  vector.values.assign(indices.size(), 1.5F);
  vector.indices = std::move(indices);
  return vector;
}

std::size_t count_at(double ratio) { return static_cast<std::size_t>(ratio * static_cast<double>(kDim)); }

// Bits per index of the frame without its values: indices, header and checksum.
double bits_per_index(const Bytes& frame, std::size_t count) {
  return 8.0 * static_cast<double>(frame.size() - 4 * count) / static_cast<double>(count);
}

double entropy(std::uint64_t dim, std::uint64_t count) {
  const auto log2_factorial = [](std::uint64_t n) {
    return static_cast<double>(std::lgamma(static_cast<long double>(n) + 1) / std::log(2.0L));
  };
  return (log2_factorial(dim) - log2_factorial(count) - log2_factorial(dim - count)) / static_cast<double>(count);
}

TEST(WireSize, HasTheRightEntropyBound) {
  EXPECT_EQ(entropy_bound_index_bits(100, 0), 0.0);
  EXPECT_EQ(entropy_bound_index_bits(0, 0), 0.0);
  EXPECT_NEAR(entropy_bound_index_bits(100, 100), 0.0, 1e-9);
  EXPECT_NEAR(entropy_bound_index_bits(1024, 1), 10.0, 1e-9);
  EXPECT_NEAR(entropy_bound_index_bits(5, 2), std::log2(10.0) / 2, 1e-9);
  for (const double ratio : {0.5, 0.1, 0.01, 0.001, 0.0001}) {
    EXPECT_NEAR(entropy_bound_index_bits(kDim, count_at(ratio)), entropy(kDim, count_at(ratio)), 1e-6) << ratio;
  }
}

TEST(WireSize, OfRandomIndicesIsWithinTwoPercentOfTheBound) {
  for (const double ratio : random_ratios()) {
    const std::size_t count = count_at(ratio);
    const SparseVector vector = with_indices(random_indices(kDim, count, kFrameSeed));
    const double bound = entropy(kDim, count);
    for (const char* spec : {"golomb:values=f32", "auto:pack=no"}) {
      const double bits = bits_per_index(encoded(spec, vector), count);
      EXPECT_LE(bits, 1.02 * bound) << spec << " at " << ratio << ", seed " << kFrameSeed;
      std::cout << spec << " at " << ratio << ": " << bits << " bits, " << bits / bound << " times the bound\n";
    }
  }
}

// `adaptive` is read faster than `golomb`. Its parameters are powers of two: where the best divisor is close to one,
// `auto` takes it.
TEST(WireSize, OfRandomIndicesMayBeALittleLongerWhereTheyAreReadFaster) {
  const auto codec_at = [](double ratio) {
    const SparseVector vector = with_indices(random_indices(kDim, count_at(ratio), kFrameSeed));
    const auto frame = encoded("auto:pack=no", vector);
    EXPECT_LE(bits_per_index(frame, vector.size()), 1.005 * bits_per_index(encoded("golomb", vector), vector.size()));
    FrameInfo info;
    EXPECT_EQ(inspect(frame, info), DecodeStatus::ok);
    return info.codec.substr(0, info.codec.find(':'));
  };
  EXPECT_EQ(codec_at(0.01), "adaptive");
  EXPECT_EQ(codec_at(0.03), "golomb");
}

// ---- supports as in training

// A support of `count` entries: calls next(set), which sets some, until there are enough.
template <class Next>
Indices until_there_are(std::size_t count, const Next& next) {
  std::vector<bool> present(kDim);
  std::size_t left = count;
  const auto set = [&](std::uint64_t i) {
    if (left == 0 || i >= kDim || present[i]) return;
    present[i] = true;
    --left;
  };
  while (left > 0) next(set);
  Indices indices;
  for (std::size_t i = 0; i < kDim; ++i) {
    if (present[i]) indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

Indices runs_at_random(std::size_t count, std::size_t shortest, std::size_t longest) {
  reference::Random random(kFrameSeed + 1);
  return until_there_are(count, [&](const auto& set) {
    const std::size_t begin = random.below(kDim);
    const std::size_t length = shortest + random.below(longest - shortest + 1);
    for (std::size_t i = 0; i < length; ++i) set(begin + i);
  });
}

Indices short_runs(std::size_t count) { return runs_at_random(count, 2, 32); }
Indices pairs(std::size_t count) { return runs_at_random(count, 2, 2); }

constexpr std::size_t kRow = 768;

// Rows with a density of 30 %, and one entry in fifty anywhere.
Indices hot_rows(std::size_t count) {
  reference::Random random(kFrameSeed + 2);
  return until_there_are(count, [&](const auto& set) {
    const std::size_t row = random.below(kDim / kRow);
    for (std::size_t i = 0; i < kRow; ++i) {
      if (random.uniform() < 0.3) set(row * kRow + i);
    }
    for (int i = 0; i < 5; ++i) set(random.below(kDim));
  });
}

// The same columns of every row, with a density of one half, and one entry in fifty anywhere.
Indices hot_columns(std::size_t count) {
  reference::Random random(kFrameSeed + 3);
  const std::size_t columns = std::max<std::size_t>(1, 2 * count / (kDim / kRow));
  std::vector<std::size_t> hot;
  while (hot.size() < columns) hot.push_back(random.below(kRow));
  return until_there_are(count, [&](const auto& set) {
    for (int i = 0; i < 49; ++i) set(random.below(kDim / kRow) * kRow + hot[random.below(hot.size())]);
    set(random.below(kDim));
  });
}

struct Support {
  const char* name;
  Indices (*make)(std::size_t count);
};

void PrintTo(const Support& support, std::ostream* out) { *out << support.name; }

class ClusteredIndices : public ::testing::TestWithParam<Support> {};

INSTANTIATE_TEST_SUITE_P(Supports, ClusteredIndices,
                         ::testing::Values(Support{"ShortRuns", short_runs}, Support{"Pairs", pairs},
                                           Support{"HotRows", hot_rows}, Support{"HotColumns", hot_columns}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ClusteredIndices, TakeNoMoreThanRandomOnes) {
  for (const double ratio : clustered_ratios()) {
    const std::size_t count = count_at(ratio);
    const SparseVector random = with_indices(random_indices(kDim, count, kFrameSeed));
    const SparseVector clustered_ones = with_indices(GetParam().make(count));
    ASSERT_TRUE(clustered_ones.is_valid());
    for (const char* spec : {"golomb", "auto:pack=no"}) {
      const double expected = bits_per_index(encoded(spec, random), count);
      const double bits = bits_per_index(encoded(spec, clustered_ones), count);
      EXPECT_LE(bits, 1.005 * expected) << spec << " at " << ratio << ", seed " << kFrameSeed;
      std::cout << spec << " at " << ratio << ": " << bits << " bits, random ones " << expected << '\n';
    }
  }
}

// 20 layers with densities log-uniform over two decades.
Indices layers(std::size_t count) {
  constexpr std::size_t kLayers = 20;
  reference::Random random(kFrameSeed + 4);
  std::vector<double> shares;
  double sum = 0;
  for (std::size_t i = 0; i < kLayers; ++i) {
    shares.push_back(std::pow(10.0, -2 * random.uniform()));
    sum += shares.back();
  }
  Indices indices;
  for (std::size_t i = 0; i < kLayers; ++i) {
    const auto of_layer = static_cast<std::size_t>(static_cast<double>(count) * shares[i] / sum);
    for (const std::uint32_t index : random_indices(kDim / kLayers, of_layer, kFrameSeed + i)) {
      indices.push_back(static_cast<std::uint32_t>(i * (kDim / kLayers)) + index);
    }
  }
  return indices;
}

TEST(WireSize, FollowsTheDensity) {
  const SparseVector vector = with_indices(layers(count_at(0.01)));
  const double bits = bits_per_index(encoded("auto:pack=no", vector), vector.size());
  const double by_golomb = bits_per_index(encoded("golomb", vector), vector.size());
  EXPECT_LE(bits, 0.93 * by_golomb);
  std::cout << "layers: " << bits << " bits, " << by_golomb << " with one divisor\n";
}

// ---- values

// Of numbers from `kind`, those above a threshold.
SparseVector above(const char* kind, float threshold) {
  SparseVector vector;
  for (const float value : reference::input(kind).make(1'000'000, 0, kFrameSeed)) {
    if (std::fabs(value) >= threshold) {
      vector.indices.push_back(static_cast<std::uint32_t>(vector.dim));
      vector.values.push_back(value);
    }
    ++vector.dim;
  }
  return vector;
}

double bits_per_value(const std::string& spec, const SparseVector& vector) {
  FrameInfo info;
  EXPECT_EQ(inspect(encoded(spec, vector), info), DecodeStatus::ok);
  return 8.0 * static_cast<double>(info.value_bytes) / static_cast<double>(info.count);
}

TEST(WireSize, OfValuesAboveAThresholdIsFarBelowThatOfTheirFormat) {
  const SparseVector vector = above("normal", 2.576F);  // 1 % of them
  EXPECT_LE(bits_per_value("auto:values=bf16", vector), 7.0);
  EXPECT_LE(bits_per_value("auto:values=f32", vector), 23.0);
  EXPECT_LE(bits_per_value("auto:values=f16", vector), 10.0);
  EXPECT_LT(bits_per_value("auto:values=int8", vector), 8.0);
  EXPECT_EQ(bits_per_value("auto:values=bf16,pack=no", vector), 16.0);
}

// A sum of what two workers sent: where they disagree, values of all magnitudes remain.
TEST(WireSize, OfSumsIsFarBelowThatOfTheirFormat) {
  SparseVector vector = above("normal", 2.576F);
  for (std::size_t i = 0; i + 1 < vector.size(); i += 20) vector.values[i] += vector.values[i + 1] * 0.99F;
  EXPECT_LE(bits_per_value("auto:values=bf16", vector), 9.0);
}

TEST(WireSize, OfTwoBitValuesAtOneIn64IsBelowTenBitsPerEntry) {
  const std::size_t count = kDim / 64;
  SparseVector vector = with_indices(random_indices(kDim, count, kFrameSeed));
  vector.values = reference::input("normal").make(count, 0, kFrameSeed);
  for (const char* spec : {"golomb:values=int2,block=256", "auto:values=int2,block=256"}) {
    const double bits = 8.0 * static_cast<double>(encoded(spec, vector).size()) / static_cast<double>(count);
    EXPECT_LE(bits, 9.7) << spec;
    std::cout << spec << ": " << bits << " bits per entry\n";
  }
}

}  // namespace
}  // namespace sparsewire::wire_size_test
