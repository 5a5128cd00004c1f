// Models made of networks, and what they have in common. Where they compute is decided here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "train/model.h"
#include "train/torch/network.h"
#include "train/torch/runners.h"

namespace sparsewire::train::torch {

std::unique_ptr<Model> make_host_model(std::unique_ptr<Network> network);
// Copies weights to the device and gradients back.
std::unique_ptr<Model> make_device_model(std::unique_ptr<Network> network, at::Device device);

// Tensors over the numbers of a batch, which are borrowed and not written to. `pixels`: those of the batch, or a copy.
at::Tensor inputs_of(const Network& network, const ModelBatch& batch, const float* pixels);
at::Tensor targets_of(const ModelBatch& batch);

// Runs the work on one of the threads. An error of libtorch becomes a std::runtime_error.
void run_pass(Runners& runners, const std::function<void()>& work);

}  // namespace sparsewire::train::torch
