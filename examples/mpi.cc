// threads.cc with processes instead of threads: every process that mpirun starts is one worker. Only the transport
// differs.
//
//   mpirun -n 4 ./mpi
#include <sparsewire/errors.h>
#include <sparsewire/worker.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "least_squares.h"

namespace {

// Returns how far from the solution this process ended.
float train(sparsewire::Transport& transport) {
  constexpr int kSteps = 500;
  constexpr float kLearningRate = 0.3F;

  const LeastSquares problem(transport.rank());
  std::vector<float> weights(LeastSquares::kWeights, 0.0F);
  std::vector<float> gradient(LeastSquares::kWeights);

  sparsewire::Worker worker({.sparsifier = "topk:ratio=0.1", .exchange = "sharded", .downlink = "topk:ratio=0.1"},
                            LeastSquares::kWeights, transport);
  for (int step = 0; step < kSteps; ++step) {
    problem.gradient(weights, gradient);
    worker.step(gradient);
    worker.apply_update(weights, kLearningRate);
  }
  return problem.distance(weights);
}

}  // namespace

int main() {
  if (!sparsewire::has_mpi()) {
    std::printf("this sparsewire was built without MPI\n");
    return 1;
  }
  try {
    // Initialises MPI, and finalises it when the program ends. The deadline is the longest that this rank waits for
    // another one.
    const auto transport = sparsewire::make_mpi_transport(std::chrono::seconds(60));
    const float distance = train(*transport);
    if (transport->rank() == 0) {
      std::printf("%d workers, largest difference from the solution: %.1e\n", transport->size(),
                  static_cast<double>(distance));
    }
    return distance < 1e-4F ? 0 : 1;
  } catch (const sparsewire::TransportError& error) {
    // Another rank is gone. The transport and the worker must not be used again: restart, and load a saved state.
    std::fprintf(stderr, "lost rank %d: %s\n", error.rank(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
