// The weights of a network as tensors over one flat buffer, and what a layer needs in a pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "train/model.h"
#include "train/random.h"

namespace sparsewire::train::torch {

// How the entries of a tensor are drawn at the start.
struct Start {
  enum class Kind : std::uint8_t { uniform, normal, constant };
  Kind kind;
  double size;  // uniform: in [-size, size]; normal: the standard deviation; constant: the value
};

// PyTorch's default for layers with that many inputs.
Start usual_start(std::int64_t inputs);

// The tensors that a network consists of. Layers declare theirs while the network is constructed.
class Declarations {
 public:
  // Return the number by which a Pass finds the tensor.
  std::size_t add(const std::string& name, std::vector<std::int64_t> shape, Start start);
  // A running mean (0 at the start) or variance (1) of so many channels.
  std::size_t add_state(std::int64_t channels, float start);

  const std::vector<ModelTensor>& tensors() const noexcept { return tensors_; }
  std::size_t dim() const noexcept { return dim_; }
  std::size_t state_size() const noexcept { return state_size_; }
  void draw(std::uint64_t seed, std::span<float> weights) const;
  void start_state(std::span<float> state) const;

  // Tensors over the numbers, which are borrowed, in the order of add().
  std::vector<at::Tensor> views(float* numbers, at::Device device = at::kCPU) const;
  std::vector<at::Tensor> state_views(float* numbers, at::Device device = at::kCPU) const;

 private:
  struct Weights {
    std::vector<std::int64_t> shape;
    std::size_t begin;
    Start start;
  };
  struct Statistics {
    std::int64_t channels;
    std::size_t begin;
    float start;
  };

  std::deque<std::string> names_;  // a deque, because tensors_ points to them
  std::vector<ModelTensor> tensors_;
  std::vector<Weights> weights_;
  std::vector<Statistics> statistics_;
  std::size_t dim_ = 0;
  std::size_t state_size_ = 0;
};

// One pass through a network.
struct Pass {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> state;
  bool is_training;
  Draws dropout;
  bool has_drawn = false;  // by drop(), from `dropout`

  // x with each entry set to 0 with that probability, the others scaled up; x itself in evaluations.
  at::Tensor drop(const at::Tensor& x, double probability);
};

}  // namespace sparsewire::train::torch
