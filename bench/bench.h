// The data that the benches of one run share: the size, one gradient, the threads, and error memories after many real
// steps. Everything is made at its first use, so that a filter that selects one bench pays for no other.
//
// The memory of floor/add is allocated like that of a Sifter, on huge pages where the system has them; the gradient,
// which belongs to the training code, is a std::vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/support/pages.h"

namespace sparsewire::bench {

struct Settings {
  std::size_t n = 25'000'000;
  int warmup_steps = 300;
};

inline constexpr double kRatios[] = {0.001, 0.01};

// k = max(1, floor(ratio*n + 0.5)), at most n.
std::size_t entries(double ratio, std::size_t n);

// The smallest |value|; 0 if there are none.
float smallest_magnitude(const std::vector<float>& values);

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

  // Shared by all benches: each fills it before use.
  std::span<float> gradient();
  // The destination of floor/add and floor/memcpy.
  std::span<float> floor_memory();
  // The memory for this ratio; its steps are run at the first call.
  const Warm& warm(double ratio);
  // What Top-k sends in the next step after warm(ratio).
  const SparseVector& sent(double ratio);
  // Null for one thread, as is the default of a Sifter.
  Pool* pool(int threads);

  // Reports progress on stderr: on a terminal as one line that is overwritten ("warming topk 0.001: 120/300 steps"),
  // elsewhere as a plain line when a task starts (done = 0).
  void progress(const std::string& what, int done, int steps);
  // Shows the name of the bench that is running; only on a terminal.
  void running(const std::string& name);
  // Clears the line of progress.
  void clear_progress();

  // What was wrong with the answer of a bench, by its name. Times of such a bench are not reported.
  std::map<std::string, std::string> failures;

 private:
  Settings settings_;
  std::vector<float> gradient_;
  LongVector floor_memory_;  // the type of a Sifter's memory
  std::map<double, Warm> warm_;
  std::map<double, SparseVector> sent_;
  std::map<int, std::unique_ptr<Pool>> pools_;
};

}  // namespace sparsewire::bench
