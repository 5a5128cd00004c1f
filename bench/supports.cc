#include "supports.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>

namespace sparsewire::bench {
namespace {

using Random = std::mt19937_64;

constexpr std::size_t kRow = 768;  // of hot_rows() and hot_columns()

double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

double entropy_of(double p) { return p <= 0 || p >= 1 ? 0 : -p * std::log2(p) - (1 - p) * std::log2(1 - p); }

// A support of k entries: calls more(random, choose), which chooses some, until there are k.
template <class More>
Indices support(std::size_t n, std::size_t k, More more) {
  Random random(n + k);
  std::vector<bool> chosen(n);
  std::size_t count = 0;
  const auto choose = [&](std::size_t index) {
    if (index >= n || count == k || chosen[index]) return;
    chosen[index] = true;
    ++count;
  };
  while (count < k) more(random, choose);
  Indices indices;
  for (std::size_t i = 0; i < n; ++i) {
    if (chosen[i]) indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

// Each entry i with probability densities(i / length).
KnownSupport chosen_by(std::size_t n, std::size_t length, const std::function<double(std::size_t)>& density) {
  Random random(n + length);
  KnownSupport support;
  double expected = 0;
  for (std::size_t begin = 0; begin < n; begin += length) {
    const std::size_t end = std::min(begin + length, n);
    const double p = density(begin / length);
    for (std::size_t i = begin; i < end; ++i) {
      if (uniform(random) < p) support.indices.push_back(static_cast<std::uint32_t>(i));
    }
    support.entropy += entropy_of(p) * static_cast<double>(end - begin);
    expected += p * static_cast<double>(end - begin);
  }
  support.entropy /= expected;
  return support;
}

SparseVector largest_of(const std::vector<float>& numbers, std::size_t k) {
  std::vector<float> sizes;
  for (const float number : numbers) sizes.push_back(std::abs(number));
  const auto kth = sizes.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(sizes.begin(), kth, sizes.end(), std::greater<>());
  SparseVector vector{.dim = numbers.size(), .indices = {}, .values = {}, .draw = {}};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::abs(numbers[i]) <= *kth) continue;
    vector.indices.push_back(static_cast<std::uint32_t>(i));
    vector.values.push_back(numbers[i]);
  }
  return vector;
}

}  // namespace

Indices random_support(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) { choose(random() % n); });
}

Indices runs(std::size_t n, std::size_t k, std::size_t shortest, std::size_t longest) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t begin = random() % n;
    const std::size_t length = shortest + random() % (longest - shortest + 1);
    for (std::size_t i = 0; i < length; ++i) choose(begin + i);
  });
}

Indices hot_rows(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t begin = random() % (n / kRow) * kRow;
    for (std::size_t i = 0; i < kRow; ++i) {
      if (random() % 10 < 3) choose(begin + i);
    }
  });
}

Indices hot_columns(std::size_t n, std::size_t k) {
  return support(n, k, [&](Random& random, auto choose) {
    const std::size_t column = random() % kRow;
    for (std::size_t begin = 0; begin < n; begin += kRow) choose(begin + column);
  });
}

KnownSupport layers(std::size_t n, double ratio, Spacing spacing) {
  constexpr std::size_t kLayers = 20;
  Random random(n);
  std::vector<double> densities;
  double sum = 0;
  for (std::size_t i = 0; i < kLayers; ++i) {
    const double place =
        spacing == Spacing::random ? uniform(random) : (static_cast<double>(i * 7 % kLayers) + 0.5) / kLayers;
    densities.push_back(std::pow(10.0, -2 * place));
    sum += densities.back();
  }
  for (double& density : densities) density *= ratio * kLayers / sum;
  return chosen_by(n, (n + kLayers - 1) / kLayers, [&](std::size_t i) { return densities[i]; });
}

KnownSupport rows(std::size_t n) {
  Random random(n + 1);
  return chosen_by(n, 512, [&](std::size_t) { return uniform(random) < 0.02 ? 0.4 : 0.002; });
}

SparseVector largest_of_normal(std::size_t n) {
  Random random(n + 2);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& number : numbers) number = normal(random);
  return largest_of(numbers, n / 100);
}

SparseVector largest_of_student(std::size_t n, int degrees) {
  constexpr std::size_t kLayers = 20;
  Random random(n + 3);
  std::student_t_distribution<float> student(static_cast<float>(degrees));
  std::vector<float> numbers(n);
  double scale = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % (n / kLayers) == 0) scale = std::exp(2 * uniform(random) - 1);
    numbers[i] = student(random) * static_cast<float>(scale);
  }
  return largest_of(numbers, n / 100);
}

}  // namespace sparsewire::bench
