#include "networks/torch/layers.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

namespace sparsewire::train::torch {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;  // of running means and variances
constexpr Start kZero{Start::Kind::constant, 0};
constexpr Start kOne{Start::Kind::constant, 1};

}  // namespace

Linear::Linear(Declarations& declare, const std::string& name, std::int64_t inputs, std::int64_t outputs)
    : weight_(declare.add(name + ".weight", {outputs, inputs}, usual_start(inputs))),
      bias_(declare.add(name + ".bias", {outputs}, usual_start(inputs))) {}

Linear::Linear(Declarations& declare, const std::string& name, std::int64_t inputs, std::int64_t outputs, Start start)
    : weight_(declare.add(name + ".weight", {outputs, inputs}, start)),
      bias_(declare.add(name + ".bias", {outputs}, kZero)) {}

at::Tensor Linear::operator()(const Pass& pass, const at::Tensor& x) const {
  return at::linear(x, pass.weights[weight_], pass.weights[bias_]);
}

Conv::Conv(Declarations& declare, const std::string& name, const ConvShape& shape) : shape_(shape) {
  const std::int64_t inputs = shape.inputs * shape.size * shape.size;
  weight_ = declare.add(name + ".weight", {shape.outputs, shape.inputs, shape.size, shape.size}, usual_start(inputs));
  if (shape.has_bias) bias_ = declare.add(name + ".bias", {shape.outputs}, usual_start(inputs));
}

at::Tensor Conv::operator()(const Pass& pass, const at::Tensor& x) const {
  return at::conv2d(x, pass.weights[weight_], shape_.has_bias ? pass.weights[bias_] : at::Tensor(), shape_.stride,
                    shape_.padding);
}

BatchNorm::BatchNorm(Declarations& declare, const std::string& name, std::int64_t channels)
    : weight_(declare.add(name + ".weight", {channels}, kOne)),
      bias_(declare.add(name + ".bias", {channels}, kZero)),
      mean_(declare.add_state(channels, 0)),
      variance_(declare.add_state(channels, 1)) {}

at::Tensor BatchNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  return at::batch_norm(x, pass.weights[weight_], pass.weights[bias_], pass.state[mean_], pass.state[variance_],
                        pass.is_training, kMomentum, kEpsilon, /*cudnn_enabled=*/true);
}

Dropout::Dropout(Declarations& declare, std::int64_t size, double probability)
    : mask_(declare.add_mask(size, probability)) {}

at::Tensor Dropout::operator()(const Pass& pass, const at::Tensor& x) const {
  return pass.is_training ? x.mul(pass.masks[mask_].view(x.sizes())) : x;
}

LayerNorm::LayerNorm(Declarations& declare, const std::string& name, std::int64_t width)
    : width_(width),
      weight_(declare.add(name + ".weight", {width}, kOne)),
      bias_(declare.add(name + ".bias", {width}, kZero)) {}

at::Tensor LayerNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  return at::layer_norm(x, {width_}, pass.weights[weight_], pass.weights[bias_], kEpsilon);
}

}  // namespace sparsewire::train::torch
