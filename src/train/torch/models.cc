// The module: models made of networks, each pass on one of the Runners.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "train/torch/network.h"
#include "train/torch/runners.h"

namespace sparsewire::train::torch {
namespace {

// Which kernels a product of matrices uses, and so its last bits, may depend on where its operands are.
constexpr std::size_t kAlignment = 64;

bool is_aligned(const float* numbers) { return reinterpret_cast<std::uintptr_t>(numbers) % kAlignment == 0; }

struct AlignedDelete {
  void operator()(float* numbers) const { ::operator delete (numbers, std::align_val_t{kAlignment}); }
};
using AlignedFloats = std::unique_ptr<float, AlignedDelete>;

AlignedFloats allocate(std::size_t size) {
  return AlignedFloats(static_cast<float*>(::operator new (size * sizeof(float), std::align_val_t{kAlignment})));
}

// Numbers where they are, or a copy of them.
class AlignedInput {
 public:
  explicit AlignedInput(std::span<const float> numbers) : numbers_(const_cast<float*>(numbers.data())) {
    if (is_aligned(numbers_)) return;
    copy_ = allocate(numbers.size());
    std::copy(numbers.begin(), numbers.end(), copy_.get());
    numbers_ = copy_.get();
  }
  float* data() const noexcept { return numbers_; }

 private:
  float* numbers_;  // nothing writes to them
  AlignedFloats copy_;
};

class TorchModel final : public Model {
 public:
  explicit TorchModel(std::unique_ptr<Network> network)
      : network_(std::move(network)), runners_([] { at::set_num_threads(1); }) {}

  std::span<const ModelTensor> tensors() const noexcept override { return declarations().tensors(); }
  std::size_t state_size() const noexcept override { return declarations().state_size(); }
  void initial_weights(std::uint64_t seed, std::span<float> weights) const override {
    declarations().draw(seed, weights);
  }
  void initial_state(std::span<float> state) const override { declarations().start_state(state); }

  double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                  std::span<float> gradient) override {
    double loss = 0;
    run([&] {
      const c10::AutoGradMode with_gradients(true);
      const AlignedInput at(weights);
      const AlignedInput pixels(batch.pixels);
      Pass pass = make_pass(batch, at.data(), state.data(), /*is_training=*/true);
      for (at::Tensor& one : pass.weights) one.set_requires_grad(true);
      const at::Tensor logits = network_->forward(pass, inputs_of(batch, pixels.data()));
      const at::Tensor mean = at::cross_entropy_loss(logits, targets_of(batch));
      mean.backward({}, std::nullopt, /*create_graph=*/false, pass.weights);
      loss = mean.item<double>();
      const c10::AutoGradMode without(false);
      std::vector<at::Tensor> results = declarations().views(gradient.data());
      for (std::size_t i = 0; i < results.size(); ++i) results[i].copy_(pass.weights[i].grad());
    });
    return loss;
  }

  ModelScore score(const ModelBatch& batch, std::span<const float> weights, std::span<const float> state) override {
    ModelScore score;
    run([&] {
      const c10::AutoGradMode without_gradients(false);
      const AlignedInput at(weights);
      const AlignedInput pixels(batch.pixels);
      Pass pass = make_pass(batch, at.data(), const_cast<float*>(state.data()), /*is_training=*/false);
      const at::Tensor logits = network_->forward(pass, inputs_of(batch, pixels.data()));
      const at::Tensor targets = targets_of(batch);
      score.loss = at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum).item<double>();
      score.right = static_cast<std::uint64_t>(logits.argmax(1).eq(targets).sum().item<std::int64_t>());
    });
    return score;
  }

 private:
  const Declarations& declarations() const noexcept { return network_->declarations(); }

  Pass make_pass(const ModelBatch& batch, float* weights, float* state, bool is_training) const {
    return {.weights = declarations().views(weights),
            .state = declarations().state_views(state),
            .is_training = is_training,
            .dropout = Draws(batch.seed, Use::dropout, batch.worker, batch.step)};
  }

  at::Tensor inputs_of(const ModelBatch& batch, float* pixels) const {
    std::vector<std::int64_t> shape = network_->input_shape();
    shape.insert(shape.begin(), static_cast<std::int64_t>(batch.size));
    if (!batch.pixels.empty()) return at::from_blob(pixels, shape);
    // Nothing writes to inputs.
    return at::from_blob(const_cast<std::int64_t*>(batch.symbols.data()), shape, at::kLong);
  }

  static at::Tensor targets_of(const ModelBatch& batch) {
    return at::from_blob(const_cast<std::int64_t*>(batch.targets.data()),
                         {static_cast<std::int64_t>(batch.targets.size())}, at::kLong);
  }

  // An error of libtorch becomes one that everybody knows.
  void run(const std::function<void()>& work) {
    runners_.run([&] {
      try {
        work();
      } catch (const c10::Error& error) {
        throw std::runtime_error(std::string("libtorch: ") + error.what_without_backtrace());
      }
    });
  }

  std::unique_ptr<Network> network_;
  Runners runners_;
};

Model* make(const char* name, const ModelSizes& sizes) {
#define NETWORK(known) \
  if (std::string_view(name) == #known) return std::make_unique<TorchModel>(make_##known(sizes)).release();
#include "train/torch/networks.def"
#undef NETWORK
  return nullptr;
}

}  // namespace
}  // namespace sparsewire::train::torch

extern "C" __attribute__((visibility("default"))) const sparsewire::train::ModelModule sparsewire_models;
const sparsewire::train::ModelModule sparsewire_models{sparsewire::train::kModelModuleVersion,
                                                       sparsewire::train::torch::make};
