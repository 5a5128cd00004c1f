// What models of text have in common: a symbol for each character, a row of symbols for each sample.
#pragma once

#include "networks/torch/network.h"

namespace sparsewire::train::torch {

class Language : public Network {
 public:
  explicit Language(const ModelSizes& sizes)
      : alphabet_(static_cast<std::int64_t>(sizes.alphabet)),
        length_(static_cast<std::int64_t>(sizes.length)),
        width_(static_cast<std::int64_t>(sizes.width)),
        depth_(static_cast<std::int64_t>(sizes.layers)) {}
  std::vector<std::int64_t> input_shape() const final { return {length_}; }

 protected:
  at::Tensor logits(const at::Tensor& x) const { return x.reshape({-1, alphabet_}); }

  std::int64_t alphabet_;
  std::int64_t length_;
  std::int64_t width_;
  std::int64_t depth_;
};

}  // namespace sparsewire::train::torch
