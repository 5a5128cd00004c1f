// Layers: each declares its tensors when it is made, and is then a function of a pass and its inputs. Names and shapes
// of the tensors are those of torch.nn.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "networks/torch/parameters.h"

namespace sparsewire::train::torch {

class Linear {
 public:
  Linear(Declarations& declare, const std::string& name, std::int64_t inputs, std::int64_t outputs);
  // With a start of your own for the weights; biases start at 0.
  Linear(Declarations& declare, const std::string& name, std::int64_t inputs, std::int64_t outputs, Start start);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;

 private:
  std::size_t weight_;
  std::size_t bias_;
};

struct ConvShape {
  std::int64_t inputs;
  std::int64_t outputs;
  std::int64_t size;  // of the square kernel
  std::int64_t padding = 0;
  std::int64_t stride = 1;
  bool has_bias = true;
};

class Conv {
 public:
  Conv(Declarations& declare, const std::string& name, const ConvShape& shape);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;

 private:
  ConvShape shape_;
  std::size_t weight_;
  std::size_t bias_ = 0;
};

// Its running mean and variance are state of the pass.
class BatchNorm {
 public:
  BatchNorm(Declarations& declare, const std::string& name, std::int64_t channels);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;

 private:
  std::size_t weight_;
  std::size_t bias_;
  std::size_t mean_;
  std::size_t variance_;
};

// Sets entries to 0 at random in trainings. `size`: entries of one sample.
class Dropout {
 public:
  Dropout(Declarations& declare, std::int64_t size, double probability);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;

 private:
  std::size_t mask_;
};

class LayerNorm {
 public:
  LayerNorm(Declarations& declare, const std::string& name, std::int64_t width);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;

 private:
  std::int64_t width_;
  std::size_t weight_;
  std::size_t bias_;
};

}  // namespace sparsewire::train::torch
