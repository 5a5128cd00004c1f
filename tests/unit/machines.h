// The configurations in which this machine can run the same step: SIMD levels and numbers of threads.
#pragma once

#include <array>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "effort.h"
#include "kernels/simd.h"
#include "sparsewire/pool.h"

namespace sparsewire {

struct Machine {
  std::string simd;
  int threads = 1;

  friend std::ostream& operator<<(std::ostream& out, const Machine& machine) {
    return out << machine.simd << " with " << machine.threads << " threads";
  }
};

// The best level first, then every level on one thread, then 2 to 4 threads; under sanitizers 3, and under the thread
// sanitizer the best level only.
inline std::vector<Machine> machines() {
  const std::vector<std::string> levels = kernels::simd_levels();
  std::vector<Machine> all = {{levels.back(), 1}};
  for (std::size_t i = 0; i + 1 < levels.size() && !kThreadsOnly; ++i) all.push_back({levels[i], 1});
  if (kSlowBuild) {
    all.push_back({levels.back(), 3});
    return all;
  }
  for (const int threads : {2, 3, 4}) all.push_back({levels.back(), threads});
  all.push_back({levels.front(), 3});
  return all;
}

// A Pool of that many threads, made once; null for one thread.
inline Pool* pool_of(int threads) {
  static std::array<std::unique_ptr<Pool>, 17> pools;
  if (threads == 1) return nullptr;
  std::unique_ptr<Pool>& pool = pools.at(static_cast<std::size_t>(threads));
  if (!pool) pool = std::make_unique<Pool>(threads);
  return pool.get();
}

// Runs the kernels at one SIMD level during its lifetime.
class AtLevel {
 public:
  explicit AtLevel(const std::string& level) : before_(kernels::simd_level()) { kernels::force_simd(level); }
  ~AtLevel() { kernels::force_simd(before_); }
  AtLevel(const AtLevel&) = delete;
  AtLevel& operator=(const AtLevel&) = delete;

 private:
  const std::string before_;
};

}  // namespace sparsewire
