// A model that computes on the processor: its tensors are views of the caller's weights.
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "networks/torch/torch_model.h"

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

class HostModel final : public NetworkModel {
 public:
  explicit HostModel(std::unique_ptr<Network> network)
      : NetworkModel(std::move(network)), runners_([] { at::set_num_threads(1); }) {}

  double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                  std::span<float> gradient) override {
    double loss = 0;
    run_pass(runners_, [&] {
      const c10::AutoGradMode with_gradients(true);
      const AlignedInput at(weights);
      const AlignedInput pixels(batch.pixels);
      Pass pass = make_pass(batch, at.data(), state.data(), /*is_training=*/true);
      for (at::Tensor& one : pass.weights) one.set_requires_grad(true);
      const at::Tensor logits = network().forward(pass, inputs_for(batch, pixels));
      const at::Tensor mean = at::cross_entropy_loss(logits, targets_of(batch));
      mean.backward({}, std::nullopt, /*create_graph=*/false, pass.weights);
      loss = mean.item<double>();
      const c10::AutoGradMode without(false);
      std::vector<at::Tensor> results = declarations().views(gradient.data());
      for (std::size_t i = 0; i < results.size(); ++i) results[i].copy_(pass.weights[i].grad());
    });
    return loss;
  }

  void* stream_of(int /*worker*/) override { return nullptr; }
  double gradient_on_device(const ModelBatch& /*batch*/, const float* /*weights*/, std::span<float> /*state*/,
                            float* /*gradient*/) override {
    throw std::logic_error("a model on the processor has no arrays on a device");
  }

  void set_scored(std::span<const float> weights, std::span<const float> state) override {
    scored_.emplace(weights);
    scored_state_ = const_cast<float*>(state.data());  // nothing writes to it
  }

  ModelScore score(const ModelBatch& batch) override {
    ModelScore score;
    run_pass(runners_, [&] {
      const c10::AutoGradMode without_gradients(false);
      const AlignedInput pixels(batch.pixels);
      Pass pass = make_pass(batch, scored_->data(), scored_state_, /*is_training=*/false);
      const at::Tensor logits = network().forward(pass, inputs_for(batch, pixels));
      const at::Tensor targets = targets_of(batch);
      score.loss = at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum).item<double>();
      score.right = static_cast<std::uint64_t>(logits.argmax(1).eq(targets).sum().item<std::int64_t>());
    });
    return score;
  }

 private:
  at::Tensor inputs_for(const ModelBatch& batch, const AlignedInput& pixels) const {
    const at::Tensor inputs = inputs_of(network(), batch, pixels.data());
    if (!network().wants_channels_last()) return inputs;
    return at::empty_like(inputs, {}, at::MemoryFormat::ChannelsLast).copy_(inputs);
  }
  Pass make_pass(const ModelBatch& batch, float* weights, float* state, bool is_training) const {
    const auto samples = static_cast<std::int64_t>(batch.size);
    return {.weights = declarations().views(weights),
            .state = declarations().state_views(state),
            .masks = is_training ? declarations().mask_views(masks_of(network(), batch), samples)
                                 : std::vector<at::Tensor>{},
            .is_training = is_training};
  }

  std::optional<AlignedInput> scored_;  // the weights
  float* scored_state_ = nullptr;
  Runners runners_;
};

}  // namespace

std::unique_ptr<Model> make_host_model(std::unique_ptr<Network> network) {
  return std::make_unique<HostModel>(std::move(network));
}

}  // namespace sparsewire::train::torch
