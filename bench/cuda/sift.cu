// What Sifter::sift takes with gradients on a GPU, beside a plain `memory += gradient`: from the call until the chosen
// entries are on the host. Every number is the median of some steps, after others that bring the memory to its steady
// state.
//
//   cuda_sift_bench [entries]     100 million by default
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "sparsewire/sifter.h"

namespace sparsewire::cuda {
namespace {

__global__ void add(float* memory, const float* gradient, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) memory[i] += gradient[i];
}

__device__ std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16U) * 0x7FEB352DU;
  x = (x ^ x >> 15U) * 0x846CA68BU;
  return x ^ x >> 16U;
}

// About N(0, 1).
__global__ void draw(float* gradient, std::size_t n, std::uint32_t seed) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const std::uint32_t a = mix(static_cast<std::uint32_t>(i) ^ mix(seed));
    const std::uint32_t b = mix(a + 0x9E3779B9U);
    const float radius = sqrtf(-2 * __logf((static_cast<float>(a >> 8U) + 0.5F) * 0x1p-24F));
    gradient[i] = radius * __cosf(6.2831853F * static_cast<float>(b >> 8U) * 0x1p-24F);
  }
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

template <class Work>
double microseconds(Work work) {
  SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

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
constexpr Case kCases[] = {{"topk 0.1 %", "topk:ratio=0.001", "ef", Scope::model},
                           {"topk 1 %", "topk:ratio=0.01", "ef", Scope::model},
                           {"threshold", "threshold:lambda=30", "ef", Scope::model},
                           {"rtopk 0.1 %", "rtopk:ratio=0.001", "ef", Scope::model},
                           {"regtopk 0.1 %", "regtopk:ratio=0.001", "ef", Scope::model},
                           {"randomk 0.1 %", "randomk:ratio=0.001", "ef", Scope::model},
                           {"topk 0.1 % by layer", "topk:ratio=0.001", "ef", Scope::layer},
                           {"topk 64 of 4096", "topk:k=64,chunk=4096", "ef:decay=0.95", Scope::model},
                           {"topk 0.1 %, momentum", "topk:ratio=0.001", "momentum:m=0.9,clip=1", Scope::model}};

void run(std::size_t entries) {
  const Device device{Device::cuda, 0};
  DeviceArray<float> plain(entries);
  DeviceArray<float> numbers(entries);
  Gradient gradient(numbers.data(), NumberType::f32, entries);
  gradient.device = device;
  std::uint32_t seed = 0;
  const auto fresh = [&] { draw<<<132 * 16, 256>>>(numbers.data(), entries, ++seed); };
  std::vector<double> floor;
  for (int i = 0; i < 21; ++i) {
    fresh();
    floor.push_back(microseconds([&] {
      add<<<static_cast<unsigned>((entries + 255) / 256), 256>>>(plain.data(), numbers.data(), entries);
      SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
    }));
  }
  std::printf("%zu entries; memory += gradient takes %.0f us\n%-24s %9s %7s %10s\n", entries, median(floor), "", "us",
              "ratio", "entries");
  for (const Case& one : kCases) {
    Sifter sifter(one.sparsifier, one.feedback, {.layout = tensors(entries), .scope = one.scope});
    SparseVector sent;
    std::vector<double> times;
    for (int step = 0; step < 140; ++step) {
      fresh();
      const double us = microseconds([&] { sifter.sift(gradient, sent); });
      if (step >= 119) times.push_back(us);
      std::vector<float> update(sent.values);
      if (sifter.traits().observes) sifter.observe(sent, update);
    }
    std::printf("%-24s %9.0f %7.2f %10zu\n", one.name, median(times), median(times) / median(floor), sent.size());
    std::fflush(stdout);
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
  sparsewire::cuda::run(count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100'000'000);
}
