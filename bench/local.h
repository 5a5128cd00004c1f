// Times everything that one rank computes in a step of `sharded` with a downlink, among four ranks, without the
// transport: sift, encode the parts, serve its region, decode the answers and merge them, apply the update to the
// weights.
//
// The other ranks are simulated, outside of the timed part: each has a sifter with gradients of its own and serves its
// region, so that frames and answers are those of error feedback after many steps.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"

namespace sparsewire::bench {

// The stages of a local step, as counters of the bench in milliseconds.
inline constexpr const char* kLocalStages[] = {"sift", "encode", "serve", "collect", "apply"};

// "local/sharded/ratio:0.001/n:25000000"
std::string local_name(double ratio, std::size_t n);

class Local {
 public:
  Local(Bench& bench, double ratio);
  ~Local();

  // The first call prepares the ranks and checks the answer of a step. Each call times some steps.
  void run(benchmark::State& state);

 private:
  struct World;

  Bench& bench_;
  const double ratio_;
  const std::string text_;
  std::unique_ptr<World> world_;
};

// The result and `bench` must outlive the run.
std::vector<std::unique_ptr<Local>> register_locals(Bench& bench);

}  // namespace sparsewire::bench
