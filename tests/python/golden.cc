// Runs workers on threads and prints a line for each set of options: "options: checksum of weights, update and memory".
// tests/python/golden.py does the same in Python: on threads (worker_test.py), over TCP and MPI (processes_test.py).
// The tests compare it with golden.txt, which this program wrote:
//
//   cmake --build build/py --target sparsewire_python_golden && build/py/python/sparsewire_python_golden >
//   tests/python/golden.txt
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "sparsewire/worker.h"

namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kDim = 1009;
constexpr int kSteps = 7;

// FNV-1a: a line of Python, too.
std::uint64_t digest(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
  return hash;
}

// Small whole numbers over 64, so that Python makes the same ones.
std::vector<float> gradient_of(int rank, int step) {
  std::vector<float> gradient(kDim);
  std::uint64_t state = static_cast<std::uint64_t>(rank * 1000 + step + 1);
  for (float& number : gradient) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    number = static_cast<float>(static_cast<int>(state >> 52) - 2048) / 64.0F;
  }
  return gradient;
}

std::uint64_t run(const sparsewire::WorkerConfig& config) {
  std::vector<std::uint64_t> digests(kRanks);
  sparsewire::run_on_threads(kRanks, [&](sparsewire::Transport& transport) {
    sparsewire::Worker worker(config, sparsewire::Layout(kDim), transport);
    std::vector<float> weights(kDim);
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> gradient = gradient_of(transport.rank(), step);
      worker.step(gradient, {.lr = 0.5F, .loss = 1});
      worker.apply_update(weights, 0.125F);
      hash = digest(hash, std::as_bytes(std::span(worker.update().values)));
    }
    hash = digest(hash, std::as_bytes(std::span(weights)));
    hash = digest(hash, std::as_bytes(std::span<const float>(worker.memory())));
    digests[static_cast<std::size_t>(transport.rank())] = hash;
  });
  std::uint64_t all = 0;
  for (const std::uint64_t one : digests) all = all * 31 + one;
  return all;
}

}  // namespace

int main() {
  const char* const exchanges[] = {"dense", "allgather", "server", "sharded", "auto"};
  const char* const sparsifiers[] = {"topk:ratio=0.02", "randomk:ratio=0.02", "rtopk:ratio=0.02,r=2",
                                     "threshold:lambda=20", "regtopk:ratio=0.3,mu=4"};
  for (const char* const exchange : exchanges) {
    for (const char* const sparsifier : sparsifiers) {
      const bool has_downlink = exchange == std::string("server") || exchange == std::string("sharded");
      const sparsewire::WorkerConfig config{.sparsifier = sparsifier,
                                            .exchange = exchange,
                                            .codec = "auto:values=bf16",
                                            .downlink = has_downlink ? "topk:ratio=0.03" : "",
                                            .seed = 11};
      std::printf("%s %s %s %016llx\n", exchange, sparsifier, has_downlink ? "topk:ratio=0.03" : "-",
                  static_cast<unsigned long long>(run(config)));
    }
  }
}
