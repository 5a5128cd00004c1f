// The networks of the downlink paper for images of 28 x 28 pixels (Zou, De Sterck and Liu, 2022).
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include "networks/torch/images.h"
#include "networks/torch/layers.h"

namespace sparsewire::train::torch {
namespace {

class Perceptron final : public SmallImages {
 public:
  // `widths`: inputs, hidden layers, classes.
  explicit Perceptron(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      layers_.emplace_back(declare_, "fc" + std::to_string(i + 1), widths[i], widths[i + 1]);
    }
  }
  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = inputs.flatten(1);
    for (const Linear& layer : layers_) x = layer(pass, &layer == layers_.data() ? x : at::relu(x));
    return x;
  }

 private:
  std::vector<Linear> layers_;
};

class MnistCnn final : public SmallImages {
 public:
  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = at::relu(conv1_(pass, inputs));
    x = at::max_pool2d(at::relu(conv2_(pass, x)), 2);
    x = drop1_(pass, x).flatten(1);
    x = drop2_(pass, at::relu(fc1_(pass, x)));
    return fc2_(pass, x);
  }
  bool wants_channels_last() const override { return true; }

 private:
  static constexpr double kDropout = 0.25;

  Conv conv1_{declare_, "conv1", {.inputs = 1, .outputs = 32, .size = 3}};
  Conv conv2_{declare_, "conv2", {.inputs = 32, .outputs = 64, .size = 3}};
  Dropout drop1_{declare_, 64 * 12 * 12, kDropout};
  Linear fc1_{declare_, "fc1", 64 * 12 * 12, 128};
  Dropout drop2_{declare_, 128, kDropout};
  Linear fc2_{declare_, "fc2", 128, kClasses};
};

class FashionCnn final : public SmallImages {
 public:
  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = at::max_pool2d(at::relu(bn1_(pass, conv1_(pass, inputs))), 2);
    x = at::max_pool2d(at::relu(bn2_(pass, conv2_(pass, x))), 2);
    return fc_(pass, x.flatten(1));
  }
  bool wants_channels_last() const override { return true; }

 private:
  Conv conv1_{declare_, "conv1", {.inputs = 1, .outputs = 16, .size = 5, .padding = 2}};
  BatchNorm bn1_{declare_, "bn1", 16};
  Conv conv2_{declare_, "conv2", {.inputs = 16, .outputs = 32, .size = 5, .padding = 2}};
  BatchNorm bn2_{declare_, "bn2", 32};
  Linear fc_{declare_, "fc", 32 * 7 * 7, kClasses};
};

}  // namespace

std::unique_ptr<Network> make_mnist_mlp(const ModelSizes& /*sizes*/) {
  return std::make_unique<Perceptron>(std::vector<std::int64_t>{784, 64, kClasses});
}
std::unique_ptr<Network> make_fashion_mlp(const ModelSizes& /*sizes*/) {
  return std::make_unique<Perceptron>(std::vector<std::int64_t>{784, 256, 128, 64, kClasses});
}
std::unique_ptr<Network> make_mnist_cnn(const ModelSizes& /*sizes*/) { return std::make_unique<MnistCnn>(); }
std::unique_ptr<Network> make_fashion_cnn(const ModelSizes& /*sizes*/) { return std::make_unique<FashionCnn>(); }

}  // namespace sparsewire::train::torch
