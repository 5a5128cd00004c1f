// What a step costs on the GPU, beside a plain `memory += gradient` in the same run: stream time by events, until
// indices, values, count and norms lie on the device; and how much later the host knows the count.
//
//   cuda_bench [entries ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/common.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/unit_memory.h"

namespace sparsewire::cuda {
namespace {

class Bench {
 public:
  explicit Bench(std::size_t entries) : n_(entries) {
    SPARSEWIRE_CUDA_CHECK(cudaMalloc(&gradient_, n_ * 4));
    SPARSEWIRE_CUDA_CHECK(cudaMalloc(&plain_, n_ * 4));
    SPARSEWIRE_CUDA_CHECK(cudaMemset(plain_, 0, n_ * 4));
    SPARSEWIRE_CUDA_CHECK(cudaMalloc(&cold_, kCold));
    SPARSEWIRE_CUDA_CHECK(cudaEventCreate(&begin_));
    SPARSEWIRE_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Bench() {
    cudaFree(gradient_);
    cudaFree(plain_);
    cudaFree(cold_);
  }

  void fresh(float scale = 1) {
    draw<<<132 * 16, 256>>>(gradient_, n_, ++seed_, scale);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(cold_, static_cast<int>(seed_), kCold));
  }
  void fresh_and_equal() {
    fill<<<132 * 16, 256>>>(gradient_, n_, 0.25F);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(cold_, static_cast<int>(++seed_), kCold));
  }
  template <class Step>
  double time(Step step) {
    SPARSEWIRE_CUDA_CHECK(cudaEventRecord(begin_));
    step();
    SPARSEWIRE_CUDA_CHECK(cudaEventRecord(end_));
    SPARSEWIRE_CUDA_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    SPARSEWIRE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return 1e3 * static_cast<double>(ms);
  }
  double floor_time() {
    fresh();
    return time([&] {
      const std::size_t quads = n_ / 4;
      add<<<static_cast<unsigned>((quads + 255) / 256), 256>>>(reinterpret_cast<float4*>(plain_),
                                                               reinterpret_cast<const float4*>(gradient_), quads);
    });
  }
  kernels::ScaledGradient gradient() const {
    kernels::ScaledGradient g;
    g.data = gradient_;
    g.size = n_;
    return g;
  }

 private:
  static constexpr std::size_t kCold = std::size_t{192} << 20U;
  std::size_t n_;
  float* gradient_ = nullptr;
  float* plain_ = nullptr;
  char* cold_ = nullptr;
  std::uint32_t seed_ = 0;
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

void run(std::size_t entries) {
  Bench bench(entries);
  const int repeats = entries > 500'000'000 ? 41 : 101;
  std::printf("%zu entries\n%-24s %9s %9s %7s %9s %9s\n", entries, "", "us", "floor us", "ratio", "entries", "failed");
  for (const double ratio : {0.001, 0.01}) {
    const auto k = static_cast<std::size_t>(ratio * static_cast<double>(entries) + 0.5);
    UnitMemory memory(entries, k);
    // Until the error memory is in its steady state.
    const int warm_up = std::min<int>(entries > 500'000'000 ? 400 : 1500, static_cast<int>(2 / ratio));
    for (int i = 0; i < warm_up; ++i) {
      bench.fresh();
      memory.top(bench.gradient(), k);
    }
    std::vector<double> floors, tops, thresholds, samples, hosts;
    std::size_t failed = 0;
    std::size_t sent = 0;
    for (int i = 0; i < repeats; ++i) {
      floors.push_back(bench.floor_time());
      bench.fresh();
      tops.push_back(bench.time([&] { memory.queue_top(bench.gradient(), k); }));
      const auto result = memory.wait();
      failed += result ? 0 : 1;
      if (!result) {
        std::printf("a guess failed; the numbers that follow are not those of the steady state\n");
        return;
      }
      sent = result->count;
      SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
      bench.fresh();
      SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
      const auto begin = std::chrono::steady_clock::now();
      memory.queue_top(bench.gradient(), k);
      memory.wait();
      hosts.push_back(1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    const double floor = median(floors);
    std::printf("topk %-19g %9.1f %9.1f %7.3f %9zu %9zu\n", ratio, median(tops), floor, median(tops) / floor, sent,
                failed);
    std::printf("  until the host knows   %9.1f\n", median(hosts));
    std::vector<double> unguessed;
    for (int i = 0; i < 21; ++i) {
      bench.fresh();
      memory.forget_guess();
      unguessed.push_back(bench.time([&] { memory.top(bench.gradient(), k); }));
    }
    std::printf("  without a guess        %9.1f %9.1f %7.3f\n", median(unguessed), floor, median(unguessed) / floor);
    // The threshold that sends about as many.
    std::vector<float> kth(1);
    const auto last = memory.top(bench.gradient(), k);
    std::vector<float> values(last.count);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpy(values.data(), last.values, values.size() * 4, cudaMemcpyDeviceToHost));
    float lambda = 3e38F;
    for (const float one : values) lambda = std::min(lambda, std::abs(one));
    for (int i = 0; i < repeats + 20; ++i) {
      bench.fresh();
      const double us = bench.time([&] { memory.queue_above(bench.gradient(), kernels::key_of(lambda)); });
      const auto result = memory.wait();
      if (!result) {
        std::printf("no room\n");
        return;
      }
      sent = result->count;
      if (i >= 20) thresholds.push_back(us);
    }
    std::printf("threshold %-14g %9.1f %9.1f %7.3f %9zu\n", ratio, median(thresholds), floor,
                median(thresholds) / floor, sent);
    std::vector<double> jumped;
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 3; ++j) {
        bench.fresh();
        memory.top(bench.gradient(), k);
      }
      bench.fresh(100);
      jumped.push_back(bench.time([&] { memory.top(bench.gradient(), k); }));
    }
    std::printf("  scale jumps 100-fold   %9.1f %9.1f %7.3f\n", median(jumped), floor, median(jumped) / floor);
    UnitMemory flat(entries, k);
    std::vector<double> equals;
    for (int i = 0; i < 6; ++i) {
      bench.fresh_and_equal();
      const double us = bench.time([&] { flat.top(bench.gradient(), k); });
      if (i > 0) equals.push_back(us);
    }
    std::printf("  all values equal       %9.1f %9.1f %7.3f\n", median(equals), floor, median(equals) / floor);
  }
}

}  // namespace
}  // namespace sparsewire::cuda

int main(int argc, char** argv) {
  try {
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    if (sizes.empty()) sizes = {25'000'000, 100'000'000, 1'000'000'000};
    for (const std::size_t size : sizes) sparsewire::cuda::run(size);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
}
