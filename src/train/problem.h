// What is trained: a model, its data, and a loss. One file for each, one line in problems.def.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sparsewire/layout.h"

namespace sparsewire::train {

struct Evaluation {
  double loss = 0;
  double metric = 0;  // what Problem::metric() names; 0 if it names nothing
};

// The whole problem, with the data of all workers. Random choices depend on the seed, the worker and the step alone, so
// a run can be stopped, resumed, and shared out over processes in any way.
//
// THREADS: gradient() for different workers and one evaluate() may run at the same time.
class Problem {
 public:
  virtual ~Problem() = default;

  // Weights, by tensor.
  virtual const Layout& layout() const noexcept = 0;
  // The same for everybody.
  virtual void initial_weights(std::span<float> weights) const = 0;
  // What worker `worker` contributes to step `step`, at these weights. Returns the loss of its batch.
  virtual double gradient(int worker, std::uint64_t step, std::span<const float> weights,
                          std::span<float> gradient) = 0;
  // The loss over all data, or over those held back for it if there are some; and the metric.
  virtual Evaluation evaluate(std::span<const float> weights) = 0;
  // What Evaluation::metric is: "accuracy", "distance"; empty if there is none.
  virtual std::string_view metric() const noexcept = 0;
};

// Where a problem is set up. Everything it may depend on besides its spec.
struct ProblemPlace {
  int workers = 1;
  std::uint64_t seed = 0;
  std::string data;  // a file, for problems that take one; empty: none given
};

// Makes a problem from `name:key=value,key=value`. Throws UsageError, also if it is given data that it does not take.
std::unique_ptr<Problem> make_problem(std::string_view spec, const ProblemPlace& place);

struct ProblemInfo {
  std::string_view name;
  std::string_view summary;  // in a few words
  std::string_view example;  // a spec that works, without data
  bool takes_data = false;   // ProblemPlace::data may name a file
};
// Every problem there is.
std::span<const ProblemInfo> problems() noexcept;

}  // namespace sparsewire::train
