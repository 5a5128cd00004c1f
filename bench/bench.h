// What the benches of one run share: the size, one gradient, the threads, and memories that really carried over many
// steps. Everything is made at its first use, so that a filter that selects one bench pays for no other.
//
// The floor's memory is allocated as a Sifter's is, on large pages where the system has them; the gradient, which is
// the trainer's, is a std::vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/pages.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

struct Settings {
  std::size_t n = 25'000'000;
  int warmup_steps = 300;
};

inline constexpr double kRatios[] = {0.001, 0.01};

// k = max(1, floor(ratio*n + 0.5)), at most n.
std::size_t entries(double ratio, std::size_t n);

// A memory after `step` steps of exact Top-k with error feedback.
struct Warm {
  std::vector<float> memory;
  std::uint64_t step = 0;
  float threshold = 0;  // median of the k-th magnitude over the last tenth of the steps
};

class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings) {}

  std::size_t n() const noexcept { return settings_.n; }
  int warmup_steps() const noexcept { return settings_.warmup_steps; }

  // One for all: who needs it fills it first.
  std::span<float> gradient();
  // What floor/add adds to and floor/memcpy copies to.
  std::span<float> floor_memory();
  // Warmed up at the first call for this ratio.
  const Warm& warm(double ratio);
  // What Top-k sends in the next step from there.
  const SparseVector& sent(double ratio);
  // Null for one thread, which is a Sifter's default.
  Pool* pool(int threads);

  // Tells who waits what is going on, on stderr: on a terminal one line that is written over ("warming topk 0.001:
  // 120/300 steps"), elsewhere a plain line when something begins (done = 0).
  void progress(const std::string& what, int done, int steps);
  // Which bench runs now; only on a terminal.
  void running(const std::string& name);
  // Clears the line.
  void quiet();

  // What was wrong with an answer, by the name of the bench. A run with an entry here is no measurement.
  std::map<std::string, std::string> failures;

 private:
  Settings settings_;
  std::vector<float> gradient_;
  LongVector floor_memory_;  // as a Sifter's memory is
  std::map<double, Warm> warm_;
  std::map<double, SparseVector> sent_;
  std::map<int, std::unique_ptr<Pool>> pools_;
};

}  // namespace sparsewire::bench
