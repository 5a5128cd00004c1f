// A small GPT (Radford et al., 2019): pre-norm blocks, exact GELU; the output layer shares the weights of the
// embedding.
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <optional>

#include "networks/torch/language.h"
#include "networks/torch/layers.h"

namespace sparsewire::train::torch {
namespace {

constexpr Start kGptStart{Start::Kind::normal, 0.02};

// Attention over what came before, then a perceptron; each adds to its inputs.
class GptBlock {
 public:
  GptBlock(Declarations& declare, const std::string& name, std::int64_t width, std::int64_t heads, Start last)
      : heads_(heads),
        ln1_(declare, name + ".ln_1", width),
        attention_(declare, name + ".attn.c_attn", width, 3 * width, kGptStart),
        projection_(declare, name + ".attn.c_proj", width, width, last),
        ln2_(declare, name + ".ln_2", width),
        wider_(declare, name + ".mlp.c_fc", width, 4 * width, kGptStart),
        narrower_(declare, name + ".mlp.c_proj", 4 * width, width, last) {}

  at::Tensor operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& is_later) const {
    const at::Tensor y = x.add(projection_(pass, attend(attention_(pass, ln1_(pass, x)), is_later)));
    return y.add(narrower_(pass, at::gelu(wider_(pass, ln2_(pass, y)))));
  }

 private:
  at::Tensor attend(const at::Tensor& all, const at::Tensor& is_later) const {
    const std::int64_t rows = all.size(0);
    const std::int64_t length = all.size(1);
    const std::int64_t width = all.size(2) / 3;
    const auto part = [&](std::int64_t number) {
      return all.narrow(2, number * width, width).reshape({rows, length, heads_, width / heads_}).transpose(1, 2);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    at::Tensor score = at::matmul(part(0), part(1).transpose(2, 3)).mul(scale);
    score = score.masked_fill(is_later, -std::numeric_limits<float>::infinity());
    return at::matmul(at::softmax(score, -1), part(2)).transpose(1, 2).reshape({rows, length, width});
  }

  std::int64_t heads_;
  LayerNorm ln1_;
  Linear attention_;
  Linear projection_;
  LayerNorm ln2_;
  Linear wider_;
  Linear narrower_;
};

class Gpt final : public Language {
 public:
  explicit Gpt(const ModelSizes& sizes)
      : Language(sizes),
        symbols_(declare_.add("wte.weight", {alphabet_, width_}, kGptStart)),
        places_(declare_.add("wpe.weight", {length_, width_}, kGptStart)) {
    // The sum of all that the blocks add then has a variance that does not depend on their number.
    const Start last{Start::Kind::normal, kGptStart.size / std::sqrt(2.0 * static_cast<double>(depth_))};
    for (std::int64_t i = 0; i < depth_; ++i) {
      blocks_.emplace_back(declare_, "h." + std::to_string(i), width_, static_cast<std::int64_t>(sizes.heads), last);
    }
    norm_.emplace(declare_, "ln_f", width_);
  }

  at::Tensor forward(const Pass& pass, const at::Tensor& inputs) const override {
    at::Tensor x = at::embedding(pass.weights[symbols_], inputs).add(pass.weights[places_]);
    const at::Tensor is_later =
        at::ones({length_, length_}, at::TensorOptions().dtype(at::kBool).device(inputs.device())).triu(1);
    for (const GptBlock& block : blocks_) x = block(pass, x, is_later);
    return logits(at::linear((*norm_)(pass, x), pass.weights[symbols_]));
  }

 private:
  std::size_t symbols_;
  std::size_t places_;
  std::vector<GptBlock> blocks_;
  std::optional<LayerNorm> norm_;
};

}  // namespace

std::unique_ptr<Network> make_gpt(const ModelSizes& sizes) { return std::make_unique<Gpt>(sizes); }

}  // namespace sparsewire::train::torch
