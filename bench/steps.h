// Times one step of error feedback: Sifter::sift with feedback `ef`, for each sparsifier and several cases of input.
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

// The input of a step.
//
//   steady    the next step after hundreds
//   noisy     the same, and the gradients of the batches differ in scale, by a third more or less
//   first     the same memory and gradient, with a new sparsifier that has no guess of the threshold yet
//   jump      100 times as large as in the step before, then 100 times smaller, and so on
//   equal     all magnitudes are the same
//   sparse    half as many non-zero numbers as could be sent
//   sorted    magnitudes ascend with the index
enum class Case : std::uint8_t { steady, noisy, first, jump, equal, sparse, sorted };

// A made-up update of 8 workers at the entries that this one sent: its own part and, at a quarter of the entries, a
// part of the others, which may cancel it or add to it.
void fill_update(const SparseVector& sent, std::vector<float>& update);

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

  // The first call prepares the step and checks its answer at full size. Each call times some steps.
  void run(benchmark::State& state);

 private:
  void prepare();
  void check();
  void make_sifter();

  void set_up();     // sets the gradient, and the memory if the case needs a special one
  void sift();       // the timed part
  void tear_down();  // what a worker does after the sift: observe()

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

// The result and `bench` must outlive the run.
std::vector<std::unique_ptr<Step>> register_steps(Bench& bench);

}  // namespace sparsewire::bench
