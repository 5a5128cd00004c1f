// One step of error feedback, timed: Sifter::sift with feedback `ef`, for each sparsifier and each kind of day.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "sparsewire/sifter.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

// What a step finds.
//
//   steady    the next step after hundreds
//   first     the same memory and gradient, with a sparsifier that has seen nothing yet
//   jump      100 times as large as the step before, then 100 times smaller, and so on
//   equal     all magnitudes the same
//   sparse    half as many numbers as could be sent, the rest zeros
//   sorted    magnitudes ascending with the index
enum class Case : std::uint8_t { steady, first, jump, equal, sparse, sorted };

struct StepName {
  std::string sparsifier;
  double ratio = 0;
  Case situation = Case::steady;
  int threads = 1;

  // "step/topk/ratio:0.001/case:steady/threads:1/n:25000000"
  std::string text(std::size_t n) const;
};

class Step {
 public:
  Step(Bench& bench, StepName name);

  // Prepares at the first call, which includes a check of the answer at full size; then times.
  void run(benchmark::State& state);

 private:
  void prepare();
  void check();
  void make_sifter();

  void set_up();    // gradient, and the memory where the case is about it
  void sift();      // the timed part
  void put_away();  // what follows a step on a real worker

  Bench& bench_;
  const StepName name_;
  const std::string text_;
  bool prepared_ = false;
  std::optional<Sifter> sifter_;
  SparseVector sent_;
  std::vector<float> update_;  // at the entries of sent_
  std::vector<std::uint32_t> sent_last_step_;
  std::uint64_t step_ = 0;
  bool jump_up_ = false;
};

// Keep the result until the run is over; `bench` likewise.
std::vector<std::unique_ptr<Step>> register_steps(Bench& bench);

}  // namespace sparsewire::bench
