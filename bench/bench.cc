#include "bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "data.h"
#include "sparsewire/sifter.h"

namespace sparsewire::bench {
namespace {

float median(std::span<float> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

bool on_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

void overwrite_line(const std::string& line) { fmt::print(stderr, "\r\033[K{}", line); }

}  // namespace

std::size_t entries(double ratio, std::size_t n) {
  const auto k = static_cast<std::size_t>(std::floor(ratio * static_cast<double>(n) + 0.5));
  return std::min(std::max<std::size_t>(k, 1), n);
}

float smallest_magnitude(const std::vector<float>& values) {
  float smallest = values.empty() ? 0.0F : std::abs(values.front());
  for (const float value : values) smallest = std::min(smallest, std::abs(value));
  return smallest;
}

std::span<float> Bench::gradient() {
  gradient_.resize(n());
  return gradient_;
}

std::span<float> Bench::floor_memory() {
  floor_memory_.resize(n());
  return floor_memory_;
}

const Warm& Bench::warm(double ratio) {
  const auto [entry, is_new] = warm_.try_emplace(ratio);
  Warm& warm = entry->second;
  if (!is_new) return warm;

  Sifter sifter(fmt::format("topk:ratio={}", ratio), "ef", {.layout = n(), .pool = pool(2)});
  SparseVector sent;
  std::vector<float> thresholds;
  const std::string what = fmt::format("warming topk {}", ratio);
  for (int step = 0; step < warmup_steps(); ++step) {
    progress(what, step, warmup_steps());
    fill_gradient(warm.step++, gradient());
    sifter.sift(Gradient(gradient()), sent);
    thresholds.push_back(smallest_magnitude(sent.values));
  }
  clear_progress();
  warm.memory = sifter.memory();
  warm.threshold = median(std::span(thresholds).last((thresholds.size() + 9) / 10));
  return warm;
}

const SparseVector& Bench::sent(double ratio) {
  const auto [entry, is_new] = sent_.try_emplace(ratio);
  if (!is_new) return entry->second;
  const Warm& memory = warm(ratio);
  Sifter sifter(fmt::format("topk:ratio={}", ratio), "ef", {.layout = n(), .pool = pool(2)});
  sifter.write_memory(memory.memory);
  fill_gradient(memory.step, gradient());
  sifter.sift(Gradient(gradient()), entry->second);
  return entry->second;
}

Pool* Bench::pool(int threads) {
  if (threads == 1) return nullptr;
  std::unique_ptr<Pool>& pool = pools_[threads];
  if (pool == nullptr) pool = std::make_unique<Pool>(threads);
  return pool.get();
}

void Bench::progress(const std::string& what, int done, int steps) {
  if (on_terminal()) {
    overwrite_line(fmt::format("{}: {}/{} steps", what, done, steps));
  } else if (done == 0) {
    fmt::print(stderr, "{}: {} steps\n", what, steps);
  }
}

void Bench::running(const std::string& name) {
  if (on_terminal()) overwrite_line(name);
}

void Bench::clear_progress() {
  if (on_terminal()) overwrite_line("");
}

}  // namespace sparsewire::bench
