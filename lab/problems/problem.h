// What is trained: a model, its data and a loss. Each problem is one file and one line in problems.def.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "data/part.h"
#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"

namespace sparsewire::train {

// What the weights are worth on one part of the data.
struct Score {
  double loss = 0;       // mean over the samples, without a penalty on the weights
  double objective = 0;  // the loss and the penalty: what gradients descend; equals the loss where there is no penalty
  double metric = 0;     // what Problem::metric() names; 0 if it names nothing
};

// Where a worker's arrays on a device are used.
struct DevicePlace {
  Device device;
  void* stream = nullptr;
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
  // The gradient of worker `worker` in step `step`, at these weights. Returns the objective on its batch.
  virtual double gradient(int worker, std::uint64_t step, std::span<const float> weights,
                          std::span<float> gradient) = 0;
  // Where a worker's weights and gradients may be instead of on the host; nothing if they may not.
  virtual std::optional<DevicePlace> device_of(int /*worker*/) { return std::nullopt; }
  // As gradient(), with arrays there, which are ready, and will be, in the order of the stream.
  // REQUIRES: device_of(worker).
  virtual double gradient_on_device(int /*worker*/, std::uint64_t /*step*/, const float* /*weights*/,
                                    float* /*gradient*/) {
    throw std::logic_error("gradients of this problem are on the host");
  }
  // Whether there are samples of that part. Every problem has some to train with.
  virtual bool has(Part part) const noexcept { return part == Part::train; }
  // REQUIRES: has(part).
  virtual Score evaluate(Part part, std::span<const float> weights) = 0;
  // What Score::metric is: "accuracy", "distance"; empty if there is none.
  virtual std::string_view metric() const noexcept = 0;
  // Whether the metric depends on the samples, as an accuracy does; otherwise on the weights alone.
  virtual bool is_metric_of_samples() const noexcept { return true; }
  // Whether Score::objective has a penalty in it.
  virtual bool has_penalty() const noexcept { return false; }
  // How many training samples the worker has, for weights in proportion.
  virtual std::uint64_t samples_of(int /*worker*/) const noexcept { return 1; }

  // Numbers that a worker keeps from step to step besides the weights, such as the running means of BatchNorm layers:
  // its gradient() changes them, and they are in its checkpoint. All workers have as many; empty: none.
  virtual std::span<float> state(int /*worker*/) noexcept { return {}; }
  // What they are at the start.
  virtual void initial_state(std::span<float> /*state*/) const {}
  // From now on evaluate() uses these: the mean of all workers' states.
  virtual void set_evaluation_state(std::span<const float> /*state*/) {}

  // Size and checksum of the data file, equal for equal contents: "1234 bytes, CRC-32C 0badcafe". Empty without one.
  virtual std::string_view data_fingerprint() const noexcept { return {}; }
  // The same of the file of test data.
  virtual std::string_view test_fingerprint() const noexcept { return {}; }
};

// Everything a problem may depend on besides its spec.
struct ProblemPlace {
  int workers = 1;
  std::uint64_t seed = 0;
  std::string data = {};       // name of a file, for problems that take one; empty: none
  std::string test_data = {};  // name of a file in the same format; needs `data`; empty: none
  std::string data_dir = {};   // the folder of the data sets (data/data_sets.h); empty: SPARSEWIRE_DATA names it
  double validation = 0;       // share of the training samples that is held back, in [0, 1)
  std::string split = {};      // how the other ones are divided among the workers (split.h); empty: as the problem does
  std::string device = "cpu";  // where deep networks compute: cpu or cuda
  bool has_tf32 = true;        // convolutions on a GPU may round to TF32
  bool has_weights = false;    // the workers have been given weights, so the problem itself must weight none
};

// Makes a problem from `name:key=value,key=value`. Throws UsageError, also if it is given something that it does not
// take.
std::unique_ptr<Problem> make_problem(std::string_view spec, const ProblemPlace& place);

struct ProblemInfo {
  std::string_view name;
  std::string_view summary;  // in a few words
  std::string_view example;  // a spec that works, without data
  bool takes_data = false;   // ProblemPlace::data may name a file
  bool has_samples = false;  // some can be held back for validation, the others can be split
  bool is_deep = false;      // it needs libtorch, and a data set in ProblemPlace::data_dir
};
// Every problem there is.
std::span<const ProblemInfo> problems() noexcept;

}  // namespace sparsewire::train
