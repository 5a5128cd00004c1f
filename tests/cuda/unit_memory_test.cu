// Steps on the GPU against the same steps on the processor: the same entries, the same bits. Run on a machine with a
// GPU; elsewhere the tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "sparsewire/support/half.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/unit_memory.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"

namespace sparsewire::cuda {
namespace {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define SKIP_WITHOUT_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "there is no GPU"

template <class T>
std::vector<T> to_host(const T* data, std::size_t count) {
  std::vector<T> host(count);
  SPARSEWIRE_CUDA_CHECK(cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

std::vector<std::uint32_t> bits(const std::vector<float>& numbers) {
  std::vector<std::uint32_t> all;
  for (const float one : numbers) all.push_back(std::bit_cast<std::uint32_t>(one));
  return all;
}

// The two next to each other.
class Pair {
 public:
  Pair(std::size_t size, const std::string& sparsifier, const std::string& feedback, std::size_t most)
      : on_host_(sparsifier, feedback, {.layout = Layout(size)}), on_device_(size, most) {
    SPARSEWIRE_CUDA_CHECK(cudaMalloc(&gradient_, std::max<std::size_t>(size, 1) * 4));
  }
  ~Pair() { cudaFree(gradient_); }

  // One step of both. k == 0: all at or above the threshold.
  void step(const std::vector<float>& numbers, std::size_t k, float threshold, kernels::ScaledGradient scaled) {
    SPARSEWIRE_CUDA_CHECK(cudaMemcpy(gradient_, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice));
    scaled.data = gradient_;
    scaled.size = numbers.size();
    compare(k > 0 ? on_device_.top(scaled, k) : on_device_.above(scaled, kernels::key_of(threshold)), numbers, scaled);
  }

  // One step of both without a gradient.
  void step_without_gradient(std::size_t k) {
    compare(on_device_.top(nullptr, k, nullptr), std::vector<float>(on_device_.size()), {});
  }

  // What the device sent in a step, with what the host does.
  void compare(const Sent& sent, const std::vector<float>& numbers, const kernels::ScaledGradient& scaled) {
    SparseVector expected;
    try {
      on_host_.sift(Gradient(numbers), expected, scaled.scale);
      ASSERT_FALSE(sent.bad.has_value()) << *sent.bad;
    } catch (const BadGradient& error) {
      ASSERT_TRUE(sent.bad.has_value()) << error.what();
      EXPECT_NE(std::string(error.what()).find(std::to_string(*sent.bad)), std::string::npos)
          << error.what() << *sent.bad;
      EXPECT_EQ(bits(to_host(on_device_.data(), on_device_.size())), bits(on_host_.memory()));
      return;
    }
    ASSERT_EQ(sent.count, expected.values.size())
        << first_difference(to_host(sent.indices, sent.count), expected.indices);
    ASSERT_EQ(to_host(sent.indices, sent.count), std::vector(expected.indices.begin(), expected.indices.end()));
    ASSERT_EQ(bits(to_host(sent.values, sent.count)), bits({expected.values.begin(), expected.values.end()}));
    const SiftStats& stats = on_host_.stats();
    if (stats.entries != on_device_.size()) {
      EXPECT_EQ(std::max(0.0, sent.accumulated_norm2 - stats.sent_norm2), stats.memory_norm2);
    }
    ASSERT_EQ(bits(to_host(on_device_.data(), on_device_.size())), bits(on_host_.memory()));
  }

  static std::string first_difference(const std::vector<std::uint32_t>& a, std::span<const std::uint32_t> b) {
    std::size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    return "entry " + std::to_string(i) + ": " + (i < a.size() ? std::to_string(a[i]) : "none") + " instead of " +
           (i < b.size() ? std::to_string(b[i]) : "none");
  }

  UnitMemory& on_device() { return on_device_; }

 private:
  Sifter on_host_;
  UnitMemory on_device_;
  float* gradient_ = nullptr;
};

using Make = std::vector<float> (*)(std::size_t size, std::uint64_t seed);

std::vector<float> gauss(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> all(size);
  for (float& one : all) one = normal(random);
  return all;
}
std::vector<float> heavy(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (float& one : all) one = one * one * one * one * one;
  return all;
}
std::vector<float> equal(std::size_t size, std::uint64_t /*seed*/) { return std::vector<float>(size, -0.25F); }
std::vector<float> few_values(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (float& one : all) one = std::round(one);
  return all;
}
std::vector<float> mostly_zero(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (std::size_t i = 0; i < size; ++i) all[i] = i % 997 == seed % 997 ? all[i] : 0;
  return all;
}
std::vector<float> jumps(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (float& one : all) one *= seed % 4 == 1 ? 100.0F : seed % 4 == 3 ? 0.001F : 1.0F;
  return all;
}
std::vector<float> tiny(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (float& one : all) one *= 1e-40F;
  return all;
}
std::vector<float> clustered(std::size_t size, std::uint64_t seed) {
  std::vector<float> all = gauss(size, seed);
  for (std::size_t i = 0; i < size; ++i) all[i] *= i / 5000 % 7 == seed % 7 ? 50.0F : 1.0F;
  return all;
}

struct Input {
  const char* name;
  Make make;
};
constexpr Input kInputs[] = {{"gauss", gauss},
                             {"heavy", heavy},
                             {"equal", equal},
                             {"few_values", few_values},
                             {"mostly_zero", mostly_zero},
                             {"jumps", jumps},
                             {"tiny", tiny},
                             {"clustered", clustered}};

class EveryInput : public testing::TestWithParam<Input> {};

TEST_P(EveryInput, TopKHasTheBitsOfTheProcessor) {
  SKIP_WITHOUT_DEVICE();
  for (const std::size_t size : {1U, 31U, 32U, 33U, 511U, 513U, 4095U, 4096U, 4097U, 8193U, 70'001U, 1'000'003U}) {
    for (const double ratio : {0.001, 0.01, 0.3, 1.0}) {
      const auto k = std::max<std::size_t>(1, static_cast<std::size_t>(ratio * static_cast<double>(size) + 0.5));
      SCOPED_TRACE(std::to_string(size) + " entries, k = " + std::to_string(k));
      Pair pair(size, "topk:k=" + std::to_string(k), "ef", k);
      for (std::uint64_t step = 0; step < (size > 100'000 ? 6 : 8); ++step) {
        SCOPED_TRACE(step);
        pair.step(GetParam().make(size, step), k, 0, {});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryInput, ThresholdHasTheBitsOfTheProcessor) {
  SKIP_WITHOUT_DEVICE();
  for (const std::size_t size : {1U, 33U, 4096U, 70'001U, 1'000'003U}) {
    for (const float lambda : {1e-42F, 0.2F, 3.0F}) {
      SCOPED_TRACE(std::to_string(size) + " entries, lambda " + std::to_string(lambda));
      Pair pair(size, "threshold:lambda=" + (lambda < 1e-30F ? std::string("1e-42") : std::to_string(lambda)), "ef",
                10);
      for (std::uint64_t step = 0; step < 5; ++step) {
        pair.step(GetParam().make(size, step), 0, lambda, {});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryInput, TopKWithoutAGradientHasTheBitsOfTheProcessor) {
  SKIP_WITHOUT_DEVICE();
  for (const std::size_t size : {4097U, 70'001U}) {
    const std::size_t k = size / 50;
    Pair pair(size, "topk:k=" + std::to_string(k), "ef", k);
    for (std::uint64_t step = 0; step < 8; ++step) {
      SCOPED_TRACE(std::to_string(size) + " entries, step " + std::to_string(step));
      if (step % 2 == 0) {
        pair.step(GetParam().make(size, step), k, 0, {});
      } else {
        if (step > 2) pair.on_device().forget_guess();
        pair.step_without_gradient(k);
      }
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OnTheGpu, EveryInput, testing::ValuesIn(kInputs),
                         [](const auto& info) { return info.param.name; });

TEST(OnTheGpu, DecayAndScaleHaveTheBitsOfTheProcessor) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(100'003, "topk:k=100", "ef:decay=0.95,scale=lr", 100);
  for (std::uint64_t step = 0; step < 10; ++step) {
    kernels::ScaledGradient scaled;
    scaled.scale = 0.1F;
    scaled.decay = 0.95F;
    pair.step(gauss(100'003, step), 100, 0, scaled);
  }
}

TEST(OnTheGpu, ABadGradientIsTakenBack) {
  SKIP_WITHOUT_DEVICE();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3e38F}) {
    for (const std::size_t at : {0U, 5'000U, 99'999U}) {
      Pair pair(100'000, "topk:k=100", "ef:decay=0.5", 100);
      kernels::ScaledGradient scaled;
      scaled.decay = 0.5F;
      for (std::uint64_t step = 0; step < 6; ++step) {
        std::vector<float> numbers = gauss(100'000, step);
        if (step == 2 && bad == -3e38F) numbers[at] = -3e38F;
        if (step == 3) numbers[at] = bad;
        if (step == 3 && at != 0) numbers[99'999] = bad;
        SCOPED_TRACE(step);
        pair.step(numbers, 100, 0, scaled);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(OnTheGpu, AGuessDoesNotChangeTheResult) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(300'000, "topk:k=3000", "ef", 3000);
  for (std::uint64_t step = 0; step < 12; ++step) {
    if (step % 3 == 2) pair.on_device().forget_guess();
    pair.step(gauss(300'000, step), 3000, 0, {});
  }
}

}  // namespace
}  // namespace sparsewire::cuda
