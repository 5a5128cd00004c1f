// More entries than a signed 32-bit number can count.
#include <gtest/gtest.h>

#include "kernels/cuda/arrays.h"
#include "sparsewire/sifter.h"
#include "unit/device/arrays.h"

namespace sparsewire::cuda {
namespace {

constexpr std::size_t kSize = (std::size_t{1} << 31U) + 5'000;

void set(DeviceArray<float>& numbers, std::size_t index, float number) {
  SPARSEWIRE_CUDA_CHECK(cudaMemcpy(numbers.data() + index, &number, sizeof number, cudaMemcpyHostToDevice));
}

TEST(HugeModels, AreSifted) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  std::size_t free = 0;
  std::size_t total = 0;
  SPARSEWIRE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (free < std::size_t{24} << 30U) GTEST_SKIP() << "the GPU has less than 24 GiB of free memory";
  const std::vector<std::uint32_t> expected = {3, 1U << 20U, (1U << 31U) - 1, 1U << 31U, kSize - 1};
  DeviceArray<float> numbers(kSize);
  for (std::size_t i = 0; i < expected.size(); ++i) set(numbers, expected[i], static_cast<float>(i) - 7);
  set(numbers, 77, 0.5F);
  set(numbers, kSize - 2, 0.25F);
  Gradient gradient(numbers.data(), NumberType::f32, kSize);
  gradient.device = device_test::kDevice;
  const std::vector<TensorRange> two = {{"a", kSize / 2}, {"b", kSize - kSize / 2}};
  for (const bool by_layer : {false, true}) {
    SCOPED_TRACE(by_layer);
    Sifter sifter(
        by_layer ? "topk:ratio=1.2e-9" : "topk:k=5", "ef",
        {.layout = Layout(two), .scope = by_layer ? Scope::layer : Scope::model, .device = device_test::kDevice});
    SparseVector sent;
    sifter.sift(gradient, sent);
    if (by_layer) {
      EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{3, (1U << 31U) - 1}));
    } else {
      EXPECT_EQ(sent.indices, expected);
      EXPECT_EQ(sent.values, (std::vector<float>{-7, -6, -5, -4, -3}));
      EXPECT_EQ(sifter.stats().sent_norm2, 49 + 36 + 25 + 16 + 9);
      EXPECT_EQ(sifter.stats().memory_norm2, 0.3125);
    }
  }
  Sifter threshold("threshold:lambda=0.3", "ef", {.layout = Layout(kSize), .device = device_test::kDevice});
  SparseVector sent;
  threshold.sift(gradient, sent);
  EXPECT_EQ(sent.indices, (std::vector<std::uint32_t>{3, 77, 1U << 20U, (1U << 31U) - 1, 1U << 31U, kSize - 1}));
}

}  // namespace
}  // namespace sparsewire::cuda
