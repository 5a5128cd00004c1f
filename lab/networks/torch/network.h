// A network: its tensors, and a function from inputs to logits. Each family is a file; ../networks.def lists all.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "networks/model.h"
#include "networks/torch/parameters.h"

namespace sparsewire::train::torch {

class Network {
 public:
  virtual ~Network() = default;

  // Of a row of inputs, besides the number of samples: {1, 28, 28}, {length}. Images are floats, symbols integers.
  virtual std::vector<std::int64_t> input_shape() const = 0;
  // A row of logits for each target.
  virtual at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const = 0;
  // Whether the processor gets the images with their channels next to each other in memory. Convolutions are faster
  // then, but libtorch sums up the means of a BatchNorm in floats: not for networks with many of them.
  virtual bool wants_channels_last() const { return false; }

  const Declarations& declarations() const noexcept { return declare_; }

 protected:
  Declarations declare_;
};

#define NETWORK(name, ...) std::unique_ptr<Network> make_##name(const ModelSizes& sizes);
#include "networks/networks.def"
#undef NETWORK

}  // namespace sparsewire::train::torch
