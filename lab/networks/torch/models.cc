// The module's entry, and what all models have in common.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "networks/torch/torch_model.h"

namespace sparsewire::train::torch {

at::Tensor inputs_of(const Network& network, const ModelBatch& batch, const float* pixels) {
  std::vector<std::int64_t> shape = network.input_shape();
  shape.insert(shape.begin(), static_cast<std::int64_t>(batch.size));
  if (!batch.pixels.empty()) return at::from_blob(const_cast<float*>(pixels), shape);
  return at::from_blob(const_cast<std::int64_t*>(batch.symbols.data()), shape, at::kLong);
}

at::Tensor targets_of(const ModelBatch& batch) {
  return at::from_blob(const_cast<std::int64_t*>(batch.targets.data()),
                       {static_cast<std::int64_t>(batch.targets.size())}, at::kLong);
}

at::Tensor masks_of(const Network& network, const ModelBatch& batch) {
  const auto samples = static_cast<std::int64_t>(batch.size);
  at::Tensor masks = at::empty({network.declarations().mask_size(samples)});
  const Draws draws(batch.seed, Use::dropout, batch.worker, batch.step);
  network.declarations().draw_masks(draws, samples, masks.mutable_data_ptr<float>());
  return masks;
}

void run_pass(Runners& runners, const std::function<void()>& work) {
  runners.run([&] {
    try {
      work();
    } catch (const c10::Error& error) {
      throw std::runtime_error(std::string("libtorch: ") + error.what_without_backtrace());
    }
  });
}

namespace {

const char* missing(const char* device) {
  if (std::string_view(device) == "cpu") return nullptr;
  if (!at::hasCUDA()) return "libtorch was built without CUDA, or finds no GPU";
  return nullptr;
}

std::unique_ptr<Model> put(std::unique_ptr<Network> network, const ModelPlace& place) {
  if (std::string_view(place.device) == "cpu") return make_host_model(std::move(network));
  return make_device_model(std::move(network), at::Device(at::kCUDA, 0), place);
}

Model* make(const char* name, const ModelSizes& sizes, const ModelPlace& place) {
#define NETWORK(known, ...) \
  if (std::string_view(name) == #known) return put(make_##known(sizes), place).release();
#include "networks/networks.def"
#undef NETWORK
  return nullptr;
}

}  // namespace
}  // namespace sparsewire::train::torch

extern "C" __attribute__((visibility("default"))) const sparsewire::train::ModelModule sparsewire_models;
const sparsewire::train::ModelModule sparsewire_models{
    sparsewire::train::kModelModuleVersion, sparsewire::train::torch::missing, sparsewire::train::torch::make};
