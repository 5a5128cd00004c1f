// A deep network as the problems see it: functions of flat weights and a batch. The networks themselves need libtorch
// and are in a module of their own (torch/), which is loaded when the first one is made.
//
// Only plain types cross this border, so the module may have been compiled with another ABI of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sparsewire::train {

struct ModelTensor {
  const char* name;
  std::uint64_t size;
};

// Images with a class each, or rows of symbols, whose targets are the symbols that follow.
struct ModelBatch {
  std::size_t size = 0;                   // samples
  std::span<const float> pixels;          // of the images, one after the other (NCHW)
  std::span<const std::int64_t> symbols;  // of the rows, one after the other
  std::span<const std::int64_t> targets;  // a class for each image, a symbol for each symbol
  // Dropout is drawn from these.
  std::uint64_t seed = 0;
  int worker = 0;
  std::uint64_t step = 0;
};

// What a language model leaves open; networks for images have fixed sizes.
struct ModelSizes {
  std::uint64_t alphabet = 0;  // symbols are below it
  std::uint64_t length = 0;    // symbols in a row
  std::uint64_t width = 0;
  std::uint64_t layers = 0;
  std::uint64_t heads = 0;
};

// A line of networks.def.
struct NetworkInfo {
  const char* name;
  const char* data_set;
  std::uint64_t batch;  // samples, unless a problem says otherwise
  ModelSizes sizes;
};
std::span<const NetworkInfo> networks() noexcept;

struct ModelScore {
  double loss = 0;          // sum over the targets
  std::uint64_t right = 0;  // targets that were the most likely answer
};

// THREADS: any number of callers at a time. The same arguments give the same bits, whatever else runs.
class Model {
 public:
  virtual ~Model() = default;

  // In the order of the flat weights. They stay valid as long as the model.
  virtual std::span<const ModelTensor> tensors() const noexcept = 0;
  // Running means and variances of the BatchNorm layers: numbers that a worker keeps besides the weights.
  virtual std::size_t state_size() const noexcept = 0;

  virtual void initial_weights(std::uint64_t seed, std::span<float> weights) const = 0;
  virtual void initial_state(std::span<float> state) const = 0;

  // Writes the gradient of the mean loss of the batch, which is returned, and updates the state.
  // COST: a copy of the weights or the gradient that does not start at a multiple of 64 bytes. Throws
  // std::runtime_error.
  virtual double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                          std::span<float> gradient) = 0;
  // Where gradients may stay on the device cuda:0: a stream for each worker, in whose order the arrays of its passes
  // are ready. Null where they may not.
  virtual void* stream_of(int worker) = 0;
  // The same with weights and gradient on the device, for batch.worker. REQUIRES: stream_of(batch.worker). Throws
  // std::runtime_error.
  virtual double gradient_on_device(const ModelBatch& batch, const float* weights, std::span<float> state,
                                    float* gradient) = 0;

  // From now on score() uses these, without dropout. They are borrowed. Not while score() runs.
  virtual void set_scored(std::span<const float> weights, std::span<const float> state) = 0;
  // Throws std::runtime_error.
  virtual ModelScore score(const ModelBatch& batch) = 0;
};

// Where a model computes, and how.
struct ModelPlace {
  const char* device = "cpu";  // or "cuda"
  bool has_tf32 = true;        // convolutions on a GPU may round their inputs to TF32, 10 bits of mantissa
  bool uses_graphs = true;     // passes on a GPU are recorded, where that is possible
};

// `device`: "cpu" or "cuda". Throws UsageError, with what to do, if there is no module, or no such device. The first
// call loads it, as that of make_model() does.
void check_model_module(const std::string& device);
// Makes a model. The first call loads the module, which takes most of a second. Throws as
// check_model_module() does.
std::unique_ptr<Model> make_model(const std::string& name, const ModelSizes& sizes, const std::string& device,
                                  bool has_tf32 = true);

// What the module exports, as `sparsewire_models`.
struct ModelModule {
  std::uint32_t version;  // kModelModuleVersion
  // Why it cannot compute there; null if it can.
  const char* (*missing)(const char* device);
  // Null if there is none of that name. `has_tf32` holds for all models of the process.
  Model* (*make)(const char* name, const ModelSizes& sizes, const ModelPlace& place);
};
// Raised with every change of what is above.
inline constexpr std::uint32_t kModelModuleVersion = 3;
inline constexpr const char* kModelModuleSymbol = "sparsewire_models";

}  // namespace sparsewire::train
