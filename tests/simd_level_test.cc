// The environment variable SPARSEWIRE_SIMD decides what the kernels run on, and nothing but their speed.
//
//   simd_level_test --list                     the levels of this machine
//   SPARSEWIRE_SIMD=avx2 simd_level_test       sifts there and on the best level; fails unless both send the same bits
//
// A program of its own, because the variable is read once in a process.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/simd.h"
#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"

namespace {

using namespace sparsewire;

std::vector<SparseVector> sift_with_every_sparsifier() {
  constexpr std::size_t kDim = 10'007;  // no multiple of a vector's width
  std::vector<SparseVector> all;
  for (const SparsifierInfo& info : sparsifiers()) {
    Sifter sifter(info.example, "ef", {.layout = kDim});
    for (std::size_t step = 0; step < 3; ++step) {
      std::vector<float> gradient(kDim);
      for (std::size_t i = 0; i < kDim; ++i) {
        gradient[i] = static_cast<float>((i * 7919 + step * 104'729) % 20'011) / 20'011.0F - 0.5F;
      }
      sifter.sift(Gradient(gradient), all.emplace_back());
    }
  }
  return all;
}

int run() {
  const char* wanted = std::getenv("SPARSEWIRE_SIMD");
  const std::vector<SparseVector> sent = sift_with_every_sparsifier();
  if (wanted == nullptr || kernels::simd_level() != wanted) {
    std::printf("SPARSEWIRE_SIMD=%s, but the kernels ran on %s\n", wanted == nullptr ? "" : wanted,
                kernels::simd_level().c_str());
    return 1;
  }
  kernels::force_simd("auto");
  if (sift_with_every_sparsifier() != sent) {
    std::printf("%s and %s send different entries\n", wanted, kernels::simd_level().c_str());
    return 1;
  }
  std::printf("%zu vectors sent, the same on %s and %s\n", sent.size(), wanted, kernels::simd_level().c_str());
  return sent.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const std::string& level : kernels::simd_levels()) std::puts(level.c_str());
    return 0;
  }
  try {
    return run();
  } catch (const UsageError& error) {
    std::printf("UsageError: %s\n", error.what());
    return 1;
  }
}
