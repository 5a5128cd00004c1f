// LSTM (Hochreiter and Schmidhuber, 1997).
#include <ATen/ops/embedding.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "networks/torch/language.h"
#include "networks/torch/layers.h"

namespace sparsewire::train::torch {
namespace {

constexpr Start kNormal{Start::Kind::normal, 1};

// Each row starts with an empty memory.
class Lstm final : public Language {
 public:
  explicit Lstm(const ModelSizes& sizes) : Language(sizes), embedding_width_(std::max<std::int64_t>(1, width_ / 4)) {
    embedding_ = declare_.add("embedding.weight", {alphabet_, embedding_width_}, kNormal);
    const Start start = usual_start(width_);
    for (std::int64_t layer = 0; layer < depth_; ++layer) {
      const std::string number = std::to_string(layer);
      const std::int64_t inputs = layer == 0 ? embedding_width_ : width_;
      first_.push_back(declare_.add("lstm.weight_ih_l" + number, {4 * width_, inputs}, start));
      declare_.add("lstm.weight_hh_l" + number, {4 * width_, width_}, start);
      declare_.add("lstm.bias_ih_l" + number, {4 * width_}, start);
      declare_.add("lstm.bias_hh_l" + number, {4 * width_}, start);
    }
    linear_.emplace(declare_, "linear", width_, alphabet_);
  }

  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    const at::Tensor x = at::embedding(pass.weights[embedding_], inputs);
    const at::Tensor empty = at::zeros({depth_, inputs.size(0), width_}, x.options());
    std::vector<at::Tensor> weights;
    for (const std::size_t first : first_) {
      for (std::size_t i = first; i < first + 4; ++i) weights.push_back(pass.weights[i]);
    }
    const at::Tensor outputs =
        std::get<0>(at::lstm(x, {empty, empty}, weights, /*has_biases=*/true, depth_, /*dropout=*/0, pass.is_training,
                             /*bidirectional=*/false, /*batch_first=*/true));
    return logits((*linear_)(pass, outputs));
  }

 private:
  std::int64_t embedding_width_;
  std::size_t embedding_;
  std::vector<std::size_t> first_;  // of the four tensors of each layer
  std::optional<Linear> linear_;
};

}  // namespace

std::unique_ptr<Network> make_lstm(const ModelSizes& sizes) { return std::make_unique<Lstm>(sizes); }

}  // namespace sparsewire::train::torch
