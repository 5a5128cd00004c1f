// A model that computes on a GPU, for all workers: one thread drives it, and passes follow one another.
//
// Weights and gradients are copied through pinned host memory. The copies on the host are made by the callers' threads,
// so they overlap with passes of others. Every pass uses the same buffers on the device.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "train/torch/torch_model.h"

namespace sparsewire::train::torch {
namespace {

// The same bits in every run, as far as the libraries can: cuDNN's deterministic kernels, chosen without measurements,
// and no TF32, which has 10 bits of mantissa.
void make_deterministic() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

class DeviceModel final : public Model {
 public:
  DeviceModel(std::unique_ptr<Network> network, at::Device device)
      : network_(std::move(network)), device_(device), runners_([] { at::set_num_threads(1); }, /*most=*/1) {
    make_deterministic();
    const auto dim = static_cast<std::int64_t>(declarations().dim());
    const auto state = static_cast<std::int64_t>(declarations().state_size());
    run_pass(runners_, [&] {
      weights_ = at::empty({dim}, at::TensorOptions().device(device_));
      gradient_ = at::empty_like(weights_);
      state_ = at::empty({state}, at::TensorOptions().device(device_));
    });
  }

  std::span<const ModelTensor> tensors() const noexcept override { return declarations().tensors(); }
  std::size_t state_size() const noexcept override { return declarations().state_size(); }
  void initial_weights(std::uint64_t seed, std::span<float> weights) const override {
    declarations().draw(seed, weights);
  }
  void initial_state(std::span<float> state) const override { declarations().start_state(state); }

  double gradient(const ModelBatch& batch, std::span<const float> weights, std::span<float> state,
                  std::span<float> gradient) override {
    double loss = 0;
    const Lent host(*this);
    std::memcpy(host.data(), weights.data(), weights.size_bytes());
    run_pass(runners_, [&] {
      Pass pass = begin(batch, host.numbers(), state, /*is_training=*/true);
      at::Tensor mean;
      {
        const c10::AutoGradMode with_gradients(true);
        for (at::Tensor& one : pass.weights) one.set_requires_grad(true);
        const at::Tensor logits = network_->forward(pass, inputs(batch));
        mean = at::cross_entropy_loss(logits, targets_of(batch).to(device_));
        mean.backward({}, std::nullopt, /*create_graph=*/false, pass.weights);
      }
      const c10::AutoGradMode without_gradients(false);
      std::vector<at::Tensor> results = views(gradient_);
      for (std::size_t i = 0; i < results.size(); ++i) results[i].copy_(pass.weights[i].grad());
      host.numbers().copy_(gradient_, /*non_blocking=*/true);
      if (!state.empty()) host_view(state).copy_(state_);
      loss = mean.item<double>();  // waits for all of it
    });
    std::memcpy(gradient.data(), host.data(), gradient.size_bytes());
    return loss;
  }

  ModelScore score(const ModelBatch& batch, std::span<const float> weights, std::span<const float> state) override {
    ModelScore score;
    const Lent host(*this);
    std::memcpy(host.data(), weights.data(), weights.size_bytes());
    run_pass(runners_, [&] {
      const c10::AutoGradMode without_gradients(false);
      Pass pass = begin(batch, host.numbers(), state, /*is_training=*/false);
      const at::Tensor logits = network_->forward(pass, inputs(batch));
      const at::Tensor targets = targets_of(batch).to(device_);
      score.loss = at::cross_entropy_loss(logits.to(at::kDouble), targets, {}, at::Reduction::Sum).item<double>();
      score.right = static_cast<std::uint64_t>(logits.argmax(1).eq(targets).sum().item<std::int64_t>());
    });
    return score;
  }

 private:
  // Pinned memory of the size of the model, for one call. There are as many as callers at a time.
  class Lent {
   public:
    explicit Lent(DeviceModel& model) : model_(model) {
      {
        const std::lock_guard lock(model_.mutex_);
        if (!model_.free_.empty()) {
          numbers_ = model_.free_.back();
          model_.free_.pop_back();
        }
      }
      if (!numbers_.defined()) {
        numbers_ = at::empty({static_cast<std::int64_t>(model_.declarations().dim())},
                             at::TensorOptions().pinned_memory(model_.device_.is_cuda()));
      }
    }
    ~Lent() {
      const std::lock_guard lock(model_.mutex_);
      model_.free_.push_back(numbers_);
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

    const at::Tensor& numbers() const noexcept { return numbers_; }
    float* data() const { return numbers_.mutable_data_ptr<float>(); }

   private:
    DeviceModel& model_;
    at::Tensor numbers_;
  };

  const Declarations& declarations() const noexcept { return network_->declarations(); }
  // Parts of a flat tensor on the device.
  std::vector<at::Tensor> views(const at::Tensor& flat) const {
    return declarations().views(flat.mutable_data_ptr<float>(), device_);
  }
  static at::Tensor host_view(std::span<const float> numbers) {
    return at::from_blob(const_cast<float*>(numbers.data()), {static_cast<std::int64_t>(numbers.size())});
  }

  Pass begin(const ModelBatch& batch, const at::Tensor& weights, std::span<const float> state, bool is_training) {
    weights_.copy_(weights, /*non_blocking=*/true);
    if (!state.empty()) state_.copy_(host_view(state));
    return {.weights = views(weights_),
            .state = declarations().state_views(state_.mutable_data_ptr<float>(), device_),
            .is_training = is_training,
            .dropout = Draws(batch.seed, Use::dropout, batch.worker, batch.step)};
  }

  at::Tensor inputs(const ModelBatch& batch) const {
    return inputs_of(*network_, batch, batch.pixels.data()).to(device_);
  }

  std::unique_ptr<Network> network_;
  at::Device device_;
  at::Tensor weights_;  // on the device; so are the next two
  at::Tensor gradient_;
  at::Tensor state_;
  std::mutex mutex_;
  std::vector<at::Tensor> free_;
  Runners runners_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<Model> make_device_model(std::unique_ptr<Network> network, at::Device device) {
  return std::make_unique<DeviceModel>(std::move(network), device);
}

}  // namespace sparsewire::train::torch
