#include "networks/torch/parameters.h"

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

std::size_t Declarations::add_mask(std::int64_t size, double probability) {
  masks_.push_back({size, probability});
  return masks_.size() - 1;
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

std::int64_t Declarations::mask_size(std::int64_t samples) const noexcept {
  std::int64_t size = 0;
  for (const Mask& mask : masks_) size += samples * mask.size;
  return size;
}

// What is kept is scaled up, so that sums stay the same on average.
void Declarations::draw_masks(Draws draws, std::int64_t samples, float* masks) const {
  for (const Mask& mask : masks_) {
    const auto limit = static_cast<std::uint32_t>(mask.probability * 0x1p32);
    const auto kept = static_cast<float>(1 / (1 - mask.probability));
    for (std::int64_t i = 0; i < samples * mask.size; ++i) *masks++ = draws.word() < limit ? 0 : kept;
  }
}

std::vector<at::Tensor> Declarations::mask_views(const at::Tensor& masks, std::int64_t samples) const {
  std::vector<at::Tensor> all;
  std::int64_t begin = 0;
  for (const Mask& mask : masks_) {
    all.push_back(masks.narrow(0, begin, samples * mask.size));
    begin += samples * mask.size;
  }
  return all;
}

}  // namespace sparsewire::train::torch
