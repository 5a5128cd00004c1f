// The weights of a network as tensors over one flat buffer, and what a layer needs in a pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "data/random.h"
#include "networks/model.h"

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
  // A mask of dropout, with so many entries for each sample, each 0 with that probability.
  std::size_t add_mask(std::int64_t size, double probability);

  const std::vector<ModelTensor>& tensors() const noexcept { return tensors_; }
  std::size_t dim() const noexcept { return dim_; }
  std::size_t state_size() const noexcept { return state_size_; }
  void draw(std::uint64_t seed, std::span<float> weights) const;
  void start_state(std::span<float> state) const;
  // Entries of all masks for so many samples.
  std::int64_t mask_size(std::int64_t samples) const noexcept;
  // Writes the masks of a training step, one after the other.
  void draw_masks(Draws draws, std::int64_t samples, float* masks) const;

  // Tensors over the numbers, which are borrowed, in the order of add().
  std::vector<at::Tensor> views(float* numbers, at::Device device = at::kCPU) const;
  std::vector<at::Tensor> state_views(float* numbers, at::Device device = at::kCPU) const;
  std::vector<at::Tensor> mask_views(const at::Tensor& masks, std::int64_t samples) const;

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
  struct Mask {
    std::int64_t size;  // for one sample
    double probability;
  };

  std::deque<std::string> names_;  // a deque, because tensors_ points to them
  std::vector<ModelTensor> tensors_;
  std::vector<Weights> weights_;
  std::vector<Statistics> statistics_;
  std::vector<Mask> masks_;
  std::size_t dim_ = 0;
  std::size_t state_size_ = 0;
};

// One pass through a network.
struct Pass {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> state;
  std::vector<at::Tensor> masks;  // of dropout; none in evaluations
  bool is_training;
};

}  // namespace sparsewire::train::torch
