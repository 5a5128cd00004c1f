// What Sifter::sift takes with gradients on a GPU, beside a plain `memory += gradient`:
//   device   stream time by events, until indices, values, counts and norms lie on the device
//   count    from the call until the host knows the counts
//   whole    from the call until the chosen entries are on the host
// Every number is the median of some steps, after others that bring the memory to its steady state; each with a fresh
// gradient and a cold L2 cache.
//
//   cuda_sift_bench [entries [name]]     100 million by default; only the cases whose names begin so
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cuda/common.cuh"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/marks.h"
#include "sparsewire/sifter.h"

namespace sparsewire::cuda {
namespace {

// About as many tensors as ResNet-50 has: 161, some of them small.
Layout tensors(std::size_t size) {
  std::vector<TensorRange> all;
  for (std::size_t begin = 0; begin < size;) {
    const std::size_t number = all.size();
    const std::size_t wanted = number % 3 == 2 ? std::max<std::size_t>(size / 54, 1) : 64U << number % 5;
    const std::size_t count = std::min(wanted, size - begin);
    all.push_back({"t" + std::to_string(number), count});
    begin += count;
  }
  return Layout(all);
}

struct Case {
  const char* name;
  const char* sparsifier;
  const char* feedback;
  Scope scope;
};
constexpr Case kCases[] = {
    {"topk 0.1 %", "topk:ratio=0.001", "ef", Scope::model},
    {"topk 1 %", "topk:ratio=0.01", "ef", Scope::model},
    {"threshold", "threshold:lambda=30", "ef", Scope::model},
    {"topk 0.1 % by layer", "topk:ratio=0.001", "ef", Scope::layer},
    {"topk 64 of 4096", "topk:k=64,chunk=4096", "ef:decay=0.95", Scope::model},
    {"momentum, topk 0.1 %", "topk:ratio=0.001", "momentum:m=0.9,clip=1", Scope::model},
    {"rtopk 0.1 %", "rtopk:ratio=0.001", "ef", Scope::model},
    {"regtopk 0.1 %", "regtopk:ratio=0.001", "ef", Scope::model},
    {"rtopk 0.1 % by layer", "rtopk:ratio=0.001", "ef", Scope::layer},
    {"regtopk 0.1 % by layer", "regtopk:ratio=0.001", "ef", Scope::layer},
    {"randomk 0.1 %", "randomk:ratio=0.001", "ef", Scope::model}};

using Clock = std::chrono::steady_clock;
double us_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

class Bench {
 public:
  explicit Bench(std::size_t entries) : n_(entries), plain_(entries), numbers_(entries), cold_(kCold) {
    SPARSEWIRE_CUDA_CHECK(cudaEventCreate(&begin_));
    SPARSEWIRE_CUDA_CHECK(cudaEventCreate(&marks_.on_device));
    step_marks = &marks_;
  }
  ~Bench() {
    step_marks = nullptr;
    cudaEventDestroy(begin_);
    cudaEventDestroy(marks_.on_device);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void measure_floor() {
    std::vector<double> on_device;
    std::vector<double> whole;
    for (int i = 0; i < 42; ++i) {
      const auto step = [&] {
        add<<<static_cast<unsigned>((n_ / 4 + 255) / 256), 256>>>(
            reinterpret_cast<float4*>(plain_.data()), reinterpret_cast<const float4*>(numbers_.data()), n_ / 4);
        mark_on_device(nullptr);
        SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
      };
      (i % 2 == 0 ? on_device : whole).push_back(i % 2 == 0 ? device_time(step) : host_time(step));
    }
    floor_ = median(on_device);
    std::printf("%zu entries; memory += gradient takes %.1f us on the device, %.1f until the host knows that\n", n_,
                floor_, median(whole));
    std::printf("%-24s %9s %7s %9s %9s %10s\n", "", "device us", "ratio", "count us", "whole us", "entries");
  }

  void measure(const Case& one) {
    Gradient gradient(numbers_.data(), NumberType::f32, n_);
    gradient.device = {Device::cuda, 0};
    Sifter sifter(one.sparsifier, one.feedback, {.layout = tensors(n_), .scope = one.scope});
    SparseVector sent;
    std::vector<double> on_device;
    std::vector<double> counted;
    std::vector<double> whole;
    for (int i = 0; i < kWarmUp + 42; ++i) {
      const auto step = [&] { sifter.sift(gradient, sent); };
      const double us = i % 2 == 0 ? device_time(step) : host_time(step);
      if (i >= kWarmUp) (i % 2 == 0 ? on_device : whole).push_back(us);
      if (i >= kWarmUp && i % 2 != 0) counted.push_back(us_between(called_, marks_.counted));
      if (sifter.traits().observes) sifter.observe(sent, std::vector<float>(sent.values));
    }
    std::printf("%-24s %9.1f %7.3f %9.1f %9.1f %10zu\n", one.name, median(on_device), median(on_device) / floor_,
                median(counted), median(whole), static_cast<std::size_t>(sifter.stats().entries));
    std::fflush(stdout);
  }

 private:
  static constexpr std::size_t kCold = std::size_t{192} << 20U;
  static constexpr int kWarmUp = 118;

  void fresh() {
    draw<<<132 * 16, 256>>>(numbers_.data(), n_, ++seed_, 1);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(cold_.data(), static_cast<int>(seed_), kCold));
  }
  // The device is busy with the gradient while the host queues the step.
  template <class Step>
  double device_time(Step step) {
    fresh();
    SPARSEWIRE_CUDA_CHECK(cudaEventRecord(begin_));
    step();
    SPARSEWIRE_CUDA_CHECK(cudaEventSynchronize(marks_.on_device));
    float ms = 0;
    SPARSEWIRE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, marks_.on_device));
    return 1e3 * static_cast<double>(ms);
  }
  template <class Step>
  double host_time(Step step) {
    fresh();
    SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
    called_ = Clock::now();
    step();
    return us_between(called_, Clock::now());
  }

  std::size_t n_;
  DeviceArray<float> plain_;
  DeviceArray<float> numbers_;
  DeviceArray<char> cold_;
  std::uint32_t seed_ = 0;
  cudaEvent_t begin_{};
  StepMarks marks_;
  Clock::time_point called_;
  double floor_ = 0;
};

void run(std::size_t entries, const std::string& name) {
  Bench bench(entries);
  bench.measure_floor();
  for (const Case& one : kCases) {
    if (std::string(one.name).starts_with(name)) bench.measure(one);
  }
}

}  // namespace
}  // namespace sparsewire::cuda

int main(int count, char** arguments) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("there is no GPU");
    return 0;
  }
  try {
    sparsewire::cuda::run(count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100'000'000,
                          count > 2 ? arguments[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_sift_bench: %s\n", error.what());
    return 1;
  }
}
