// What is trained: a model, its data and a loss. Each problem is one file and one line in problems.def.
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

// The whole problem, with the data of all workers. Random choices depend only on the seed, the worker and the step, so
// a run can be stopped, resumed, and distributed over processes in any way.
//
// THREADS: gradient() for different workers and one evaluate() may run at the same time.
class Problem {
 public:
  virtual ~Problem() = default;

  // The tensors of the model.
  virtual const Layout& layout() const noexcept = 0;
  // The same on all workers.
  virtual void initial_weights(std::span<float> weights) const = 0;
  // The gradient of worker `worker` in step `step`, at these weights. Returns the loss of its batch.
  virtual double gradient(int worker, std::uint64_t step, std::span<const float> weights,
                          std::span<float> gradient) = 0;
  // The loss and the metric over the data that are held back for it, or over all data if none are.
  virtual Evaluation evaluate(std::span<const float> weights) = 0;
  // What Evaluation::metric is: "accuracy", "distance"; empty if there is none.
  virtual std::string_view metric() const noexcept = 0;
  // Size and checksum of the data file, equal for equal contents: "1234 bytes, CRC-32C 0badcafe". Empty without one.
  virtual std::string_view data_fingerprint() const noexcept { return {}; }
};

// Everything a problem may depend on besides its spec.
struct ProblemPlace {
  int workers = 1;
  std::uint64_t seed = 0;
  std::string data;  // name of a file, for problems that take one; empty: none
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
