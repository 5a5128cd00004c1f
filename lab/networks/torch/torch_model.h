// Models made of networks, and what they have in common. Where they compute is decided here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>

#include "networks/model.h"
#include "networks/torch/network.h"
#include "networks/torch/runners.h"

namespace sparsewire::train::torch {

// What does not depend on where a model computes.
class NetworkModel : public Model {
 public:
  explicit NetworkModel(std::unique_ptr<Network> network) : network_(std::move(network)) {}

  std::span<const ModelTensor> tensors() const noexcept final { return declarations().tensors(); }
  std::size_t state_size() const noexcept final { return declarations().state_size(); }
  void initial_weights(std::uint64_t seed, std::span<float> weights) const final { declarations().draw(seed, weights); }
  void initial_state(std::span<float> state) const final { declarations().start_state(state); }

 protected:
  const Network& network() const noexcept { return *network_; }
  const Declarations& declarations() const noexcept { return network_->declarations(); }

 private:
  std::unique_ptr<Network> network_;
};

std::unique_ptr<Model> make_host_model(std::unique_ptr<Network> network);
std::unique_ptr<Model> make_device_model(std::unique_ptr<Network> network, at::Device device, const ModelPlace& place);

// Tensors over the numbers of a batch, which are borrowed and not written to. `pixels`: those of the batch, or a copy.
at::Tensor inputs_of(const Network& network, const ModelBatch& batch, const float* pixels);
at::Tensor targets_of(const ModelBatch& batch);
// The masks of dropout of a training step, drawn by (seed, worker, step).
at::Tensor masks_of(const Network& network, const ModelBatch& batch);

// Runs the work on one of the threads. An error of libtorch becomes a std::runtime_error.
void run_pass(Runners& runners, const std::function<void()>& work);

}  // namespace sparsewire::train::torch
