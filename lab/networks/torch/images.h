// Networks for images of the sizes of known data sets, which have ten classes.
#pragma once

#include "networks/torch/network.h"

namespace sparsewire::train::torch {

inline constexpr std::int64_t kClasses = 10;

// As MNIST and Fashion-MNIST have them.
class SmallImages : public Network {
 public:
  std::vector<std::int64_t> input_shape() const final { return {1, 28, 28}; }
};

// As CIFAR-10 has them.
class ColourImages : public Network {
 public:
  std::vector<std::int64_t> input_shape() const final { return {3, 32, 32}; }
};

}  // namespace sparsewire::train::torch
