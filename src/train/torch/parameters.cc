#include "train/torch/parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sparsewire::train::torch {

Start usual_start(std::int64_t inputs) { return {Start::Kind::uniform, 1 / std::sqrt(static_cast<double>(inputs))}; }

std::size_t Declarations::add(const std::string& name, std::vector<std::int64_t> shape, Start start) {
  std::size_t size = 1;
  for (const std::int64_t length : shape) size *= static_cast<std::size_t>(length);
  tensors_.push_back({names_.emplace_back(name).c_str(), size});
  weights_.push_back({std::move(shape), dim_, start});
  dim_ += size;
  return weights_.size() - 1;
}

std::size_t Declarations::add_state(std::int64_t channels, float start) {
  statistics_.push_back({channels, state_size_, start});
  state_size_ += static_cast<std::size_t>(channels);
  return statistics_.size() - 1;
}

// Each tensor has a stream of its own.
void Declarations::draw(std::uint64_t seed, std::span<float> weights) const {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Start& start = weights_[i].start;
    Draws draws(seed, Use::weights, static_cast<int>(i));
    for (float& entry : weights.subspan(weights_[i].begin, tensors_[i].size)) {
      entry = static_cast<float>(start.kind == Start::Kind::constant ? start.size
                                 : start.kind == Start::Kind::normal ? start.size * draws.normal()
                                                                     : start.size * (2 * draws.uniform() - 1));
    }
  }
}

void Declarations::start_state(std::span<float> state) const {
  for (const Statistics& one : statistics_) {
    std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(one.begin), one.channels, one.start);
  }
}

std::vector<at::Tensor> Declarations::views(float* numbers, at::Device device) const {
  std::vector<at::Tensor> all;
  all.reserve(weights_.size());
  for (const Weights& one : weights_) all.push_back(at::from_blob(numbers + one.begin, one.shape, device));
  return all;
}

std::vector<at::Tensor> Declarations::state_views(float* numbers, at::Device device) const {
  std::vector<at::Tensor> all;
  all.reserve(statistics_.size());
  for (const Statistics& one : statistics_) all.push_back(at::from_blob(numbers + one.begin, {one.channels}, device));
  return all;
}

at::Tensor Pass::drop(const at::Tensor& x, double probability) {
  if (!is_training) return x;
  has_drawn = true;
  const at::Tensor mask = at::empty(x.sizes(), at::TensorOptions().dtype(at::kFloat));
  const auto limit = static_cast<std::uint32_t>(probability * 0x1p32);
  const auto kept = static_cast<float>(1 / (1 - probability));
  float* const entries = mask.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < mask.numel(); ++i) entries[i] = dropout.word() < limit ? 0 : kept;
  return x.mul(mask.to(x.device()));
}

}  // namespace sparsewire::train::torch
