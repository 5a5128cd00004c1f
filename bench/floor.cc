#include "floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "data.h"
#include "timing.h"
#include "wide.h"

namespace sparsewire::bench {

// The plain loop was the fastest of those tried on 25 million entries. With 64-byte vectors, each of which spans two
// cache lines of a std::vector, it took 10 % longer; with prefetching at a fixed distance 6 % longer; unrolling by 8,
// aligning by hand and prefetching the next page made no difference.
SPARSEWIRE_HALF_WIDE void add(float* __restrict memory, const float* __restrict gradient, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) memory[i] += gradient[i];
}

namespace {

void copy(float* __restrict memory, const float* __restrict gradient, std::size_t count) noexcept {
  std::memcpy(memory, gradient, count * sizeof(float));
}

using Kernel = void (*)(float*, const float*, std::size_t) noexcept;

// Each thread gets one contiguous part, which starts on a cache line.
void run_on(Pool* pool, Kernel kernel, std::span<float> memory, std::span<const float> gradient) {
  if (pool == nullptr) return kernel(memory.data(), gradient.data(), memory.size());
  const auto threads = static_cast<std::size_t>(pool->size());
  const auto cut = [&](std::size_t part) {
    return part == threads ? memory.size() : memory.size() * part / threads / 16 * 16;
  };
  pool->run([&](int thread) {
    const std::size_t begin = cut(static_cast<std::size_t>(thread));
    const std::size_t end = cut(static_cast<std::size_t>(thread) + 1);
    kernel(memory.data() + begin, gradient.data() + begin, end - begin);
  });
}

// Runs the kernel once and compares each entry of the memory with expected(old memory, gradient).
bool is_right(Bench& bench, Pool* pool, Kernel kernel, float (*expected)(float, float)) {
  fill_gradient(0, bench.gradient());
  const std::vector<float> before(bench.floor_memory().begin(), bench.floor_memory().end());
  run_on(pool, kernel, bench.floor_memory(), bench.gradient());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (bench.floor_memory()[i] != expected(before[i], bench.gradient()[i])) return false;
  }
  return true;
}

void register_floor(Bench& bench, const std::string& name, int threads, Kernel kernel, double bytes_per_entry,
                    float (*expected)(float, float)) {
  const auto body = [&bench, name, threads, kernel, bytes_per_entry, expected, checked = false,
                     step = std::uint64_t{0}](benchmark::State& state) mutable {
    bench.running(name);
    Pool* const pool = bench.pool(threads);
    if (!checked && !is_right(bench, pool, kernel, expected)) bench.failures[name] = "wrong sums";
    checked = true;
    if (bench.failures.contains(name)) return state.SkipWithError(bench.failures[name].c_str());
    // A new gradient before each run, as before every step, so that the caches are in the same state.
    time_steps(
        state, kStepsPerRepetition, [&] { fill_gradient(step++, bench.gradient()); },
        [&] { run_on(pool, kernel, bench.floor_memory(), bench.gradient()); }, [] {});
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<double>(state.iterations()) * bytes_per_entry *
                                                      static_cast<double>(bench.n())));
    bench.clear_progress();
  };
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond);
}

void time_nth_element(Bench& bench, double ratio, benchmark::State& state) {
  bench.running(nth_element_name(ratio));
  const Warm& warm = bench.warm(ratio);
  fill_gradient(warm.step, bench.gradient());
  std::vector<float> magnitudes(bench.n());
  const auto kth = magnitudes.begin() + static_cast<std::ptrdiff_t>(entries(ratio, bench.n()) - 1);
  const auto set_up = [&] {
    std::transform(warm.memory.begin(), warm.memory.end(), bench.gradient().begin(), magnitudes.begin(),
                   [](float memory, float gradient) { return std::abs(memory + gradient); });
  };
  const auto select = [&] { std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>()); };
  time_steps(state, 1, set_up, select, [] {});
  bench.clear_progress();
}

}  // namespace

namespace {

std::string on_threads(const char* name, int threads) {
  return threads == 1 ? name : fmt::format("{}/threads:{}", name, threads);
}

}  // namespace

void add_on(Pool* pool, std::span<float> memory, std::span<const float> gradient) {
  run_on(pool, add, memory, gradient);
}

std::string floor_add_name(int threads) { return on_threads("floor/add", threads); }
std::string floor_memcpy_name(int threads) { return on_threads("floor/memcpy", threads); }
std::string nth_element_name(double ratio) {
  return ratio == kRatios[0] ? "yardstick/nth_element" : fmt::format("yardstick/nth_element/ratio:{}", ratio);
}

void register_floors(Bench& bench) {
  for (const int threads : {1, 2}) {
    register_floor(bench, floor_add_name(threads), threads, add, 12,
                   [](float memory, float gradient) { return memory + gradient; });
  }
  for (const int threads : {1, 2}) {
    register_floor(bench, floor_memcpy_name(threads), threads, copy, 8, [](float, float gradient) { return gradient; });
  }
  for (const double ratio : kRatios) {
    benchmark::RegisterBenchmark(nth_element_name(ratio).c_str(), [&bench, ratio](benchmark::State& state) {
      time_nth_element(bench, ratio, state);
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace sparsewire::bench
