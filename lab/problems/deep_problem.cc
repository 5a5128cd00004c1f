#include "problems/deep_problem.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

namespace sparsewire::train {
namespace {

// Samples that are evaluated at a time: a number large enough that calls of the library do not count.
constexpr std::size_t kEvaluated = 100;

Layout layout_of(const Model& model) {
  std::vector<TensorRange> tensors;
  for (const ModelTensor& tensor : model.tensors()) tensors.push_back({.name = tensor.name, .size = tensor.size});
  return Layout(std::move(tensors));
}

}  // namespace

DeepProblem::DeepProblem(std::unique_ptr<Model> model, std::span<const std::uint8_t> labels, std::uint64_t batch,
                         const ProblemPlace& place)
    : model_(std::move(model)),
      layout_(layout_of(*model_)),
      seed_(place.seed),
      batches_(labels, batch, place),
      rooms_(static_cast<std::size_t>(place.workers)),
      states_(rooms_.size(), std::vector<float>(model_->state_size())),
      evaluation_state_(model_->state_size()) {
  for (std::vector<float>& state : states_) model_->initial_state(state);
  model_->initial_state(evaluation_state_);
}

void DeepProblem::initial_weights(std::span<float> weights) const {
  std::call_once(is_drawn_, [&] {
    initial_weights_.resize(layout_.dim());
    model_->initial_weights(seed_, initial_weights_);
  });
  std::copy(initial_weights_.begin(), initial_weights_.end(), weights.begin());
}

ModelBatch DeepProblem::batch_of(const Room& room, std::size_t size) {
  return {.size = size, .pixels = room.pixels, .symbols = room.symbols, .targets = room.targets};
}

ModelBatch DeepProblem::batch_of_step(int worker, std::uint64_t step) {
  Room& room = rooms_[static_cast<std::size_t>(worker)];
  take(worker, step, room);
  ModelBatch batch = batch_of(room, batches_.size_of(worker));
  batch.seed = seed_;
  batch.worker = worker;
  batch.step = step;
  return batch;
}

double DeepProblem::gradient(int worker, std::uint64_t step, std::span<const float> weights,
                             std::span<float> gradient) {
  return model_->gradient(batch_of_step(worker, step), weights, state(worker), gradient);
}

std::optional<DevicePlace> DeepProblem::device_of(int worker) {
  void* const stream = model_->stream_of(worker);
  if (stream == nullptr) return std::nullopt;
  return DevicePlace{{Device::cuda, 0}, stream};
}

double DeepProblem::gradient_on_device(int worker, std::uint64_t step, const float* weights, float* gradient) {
  return model_->gradient_on_device(batch_of_step(worker, step), weights, state(worker), gradient);
}

// Threads take pieces as they come; the sum is in the order of the pieces.
Score DeepProblem::evaluate(Part part, std::span<const float> weights) {
  const std::size_t all = size_of(part);
  std::vector<ModelScore> scores((all + kEvaluated - 1) / kEvaluated);
  std::vector<std::exception_ptr> errors(std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> targets = 0;
  model_->set_scored(weights, evaluation_state_);
  const auto work = [&](std::exception_ptr& error) {
    try {
      Room room;
      for (std::size_t piece = next++; piece < scores.size(); piece = next++) {
        const std::size_t first = piece * kEvaluated;
        const std::size_t count = std::min(kEvaluated, all - first);
        fill(part, first, count, room);
        scores[piece] = model_->score(batch_of(room, count));
        targets += room.targets.size();
      }
    } catch (...) {
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::exception_ptr& error : errors) threads.emplace_back([&] { work(error); });
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  double loss = 0;
  std::uint64_t right = 0;
  for (const ModelScore& score : scores) {
    loss += score.loss;
    right += score.right;
  }
  const auto count = static_cast<double>(targets);
  loss /= count;
  return {.loss = loss, .objective = loss, .metric = metric_of(loss, static_cast<double>(right) / count)};
}

std::span<float> DeepProblem::state(int worker) noexcept { return states_[static_cast<std::size_t>(worker)]; }

void DeepProblem::set_evaluation_state(std::span<const float> state) {
  evaluation_state_.assign(state.begin(), state.end());
}

}  // namespace sparsewire::train
