// VGG-19 with BatchNorm (Simonyan and Zisserman, 2015) and one linear layer, for small colour images.
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <optional>

#include "networks/torch/images.h"
#include "networks/torch/layers.h"

namespace sparsewire::train::torch {
namespace {

class Vgg19 final : public ColourImages {
 public:
  Vgg19() {
    std::int64_t channels = 3;
    for (const Stage& stage : kStages) {
      for (int i = 0; i < stage.layers; ++i) {
        const std::string number = std::to_string(convs_.size() + 1);
        convs_.emplace_back(declare_, "conv" + number,
                            ConvShape{.inputs = channels, .outputs = stage.width, .size = 3, .padding = 1});
        norms_.emplace_back(declare_, "bn" + number, stage.width);
        channels = stage.width;
      }
    }
    linear_.emplace(declare_, "linear", channels, kClasses);
  }

  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = inputs;
    std::size_t layer = 0;
    for (const Stage& stage : kStages) {
      for (int i = 0; i < stage.layers; ++i, ++layer) x = at::relu(norms_[layer](pass, convs_[layer](pass, x)));
      x = at::max_pool2d(x, 2);
    }
    return (*linear_)(pass, x.flatten(1));
  }

 private:
  struct Stage {
    std::int64_t width;
    int layers;
  };
  static constexpr Stage kStages[] = {{64, 2}, {128, 2}, {256, 4}, {512, 4}, {512, 4}};

  std::vector<Conv> convs_;
  std::vector<BatchNorm> norms_;
  std::optional<Linear> linear_;
};

}  // namespace

std::unique_ptr<Network> make_vgg19(const ModelSizes& /*sizes*/) { return std::make_unique<Vgg19>(); }

}  // namespace sparsewire::train::torch
