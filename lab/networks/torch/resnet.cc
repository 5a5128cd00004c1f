// Residual networks for small colour images (He, Zhang, Ren and Sun, 2016).
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/relu.h>

#include <optional>

#include "networks/torch/images.h"
#include "networks/torch/layers.h"

namespace sparsewire::train::torch {
namespace {

// What a block adds its result to, where its shape changes: a convolution, or the inputs with channels of zeros added.
enum class Shortcut : std::uint8_t { conv, zeros };

class Block {
 public:
  Block(Declarations& declare, const std::string& name, std::int64_t inputs, std::int64_t outputs, std::int64_t stride,
        Shortcut shortcut)
      : stride_(stride),
        added_(outputs - inputs),
        conv1_(declare, name + ".conv1",
               {.inputs = inputs, .outputs = outputs, .size = 3, .padding = 1, .stride = stride, .has_bias = false}),
        bn1_(declare, name + ".bn1", outputs),
        conv2_(declare, name + ".conv2",
               {.inputs = outputs, .outputs = outputs, .size = 3, .padding = 1, .has_bias = false}),
        bn2_(declare, name + ".bn2", outputs) {
    if (shortcut == Shortcut::zeros || (stride == 1 && added_ == 0)) return;
    conv_.emplace(declare, name + ".shortcut.0",
                  ConvShape{.inputs = inputs, .outputs = outputs, .size = 1, .stride = stride, .has_bias = false});
    bn_.emplace(declare, name + ".shortcut.1", outputs);
  }

  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const {
    const at::Tensor inner = at::relu(bn1_(pass, conv1_(pass, x)));
    return at::relu(bn2_(pass, conv2_(pass, inner)).add(shortcut(pass, x)));
  }

 private:
  at::Tensor shortcut(const Pass& pass, const at::Tensor& x) const {
    if (conv_) return (*bn_)(pass, (*conv_)(pass, x));
    if (stride_ == 1 && added_ == 0) return x;
    const at::Tensor fewer = x.slice(2, 0, std::nullopt, stride_).slice(3, 0, std::nullopt, stride_);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, added_ / 2, added_ - added_ / 2});
  }

  std::int64_t stride_;
  std::int64_t added_;  // channels
  Conv conv1_;
  BatchNorm bn1_;
  Conv conv2_;
  BatchNorm bn2_;
  std::optional<Conv> conv_;
  std::optional<BatchNorm> bn_;
};

class ResNet final : public ColourImages {
 public:
  // A stage for each width, with so many blocks.
  ResNet(const std::vector<std::int64_t>& widths, int blocks, Shortcut shortcut)
      : conv_(declare_, "conv1", {.inputs = 3, .outputs = widths[0], .size = 3, .padding = 1, .has_bias = false}),
        bn_(declare_, "bn1", widths[0]) {
    std::int64_t channels = widths[0];
    for (std::size_t stage = 0; stage < widths.size(); ++stage) {
      for (int i = 0; i < blocks; ++i) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
        blocks_.emplace_back(declare_, name, channels, widths[stage], stage > 0 && i == 0 ? 2 : 1, shortcut);
        channels = widths[stage];
      }
    }
    linear_.emplace(declare_, "linear", channels, kClasses);
  }

  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = at::relu(bn_(pass, conv_(pass, inputs)));
    for (const Block& block : blocks_) x = block(pass, x);
    return (*linear_)(pass, x.mean(at::IntArrayRef{2, 3}));
  }

 private:
  Conv conv_;
  BatchNorm bn_;
  std::vector<Block> blocks_;
  std::optional<Linear> linear_;
};

}  // namespace

std::unique_ptr<Network> make_resnet18(const ModelSizes& /*sizes*/) {
  return std::make_unique<ResNet>(std::vector<std::int64_t>{64, 128, 256, 512}, 2, Shortcut::conv);
}
std::unique_ptr<Network> make_resnet20(const ModelSizes& /*sizes*/) {
  return std::make_unique<ResNet>(std::vector<std::int64_t>{16, 32, 64}, 3, Shortcut::zeros);
}

}  // namespace sparsewire::train::torch
