// What deep networks on images and on text have in common: a model (model.h), and batches that are taken in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "networks/model.h"
#include "problems/batches.h"
#include "problems/problem.h"
#include "sparsewire/support/pages.h"

namespace sparsewire::train {

class DeepProblem : public Problem {
 public:
  const Layout& layout() const noexcept final { return layout_; }
  void initial_weights(std::span<float> weights) const final;
  double gradient(int worker, std::uint64_t step, std::span<const float> weights, std::span<float> gradient) final;
  std::optional<DevicePlace> device_of(int worker) final;
  double gradient_on_device(int worker, std::uint64_t step, const float* weights, float* gradient) final;
  // COST: on as many threads as there are processors.
  Score evaluate(Part part, std::span<const float> weights) final;
  std::uint64_t samples_of(int worker) const noexcept final { return batches_.samples_of(worker); }

  std::span<float> state(int worker) noexcept final;
  void initial_state(std::span<float> state) const final { model_->initial_state(state); }
  void set_evaluation_state(std::span<const float> state) final;

 protected:
  // `labels`: of the training samples, for splits.
  DeepProblem(std::unique_ptr<Model> model, std::span<const std::uint8_t> labels, std::uint64_t batch,
              const ProblemPlace& place);

  // Storage for one batch.
  struct Room {
    LongVector pixels;
    std::vector<std::int64_t> symbols;
    std::vector<std::int64_t> targets;
  };
  // Fills the batch of a step.
  virtual void take(int worker, std::uint64_t step, Room& room) = 0;
  // Fills samples of a part, of which there are size_of(part).
  virtual std::size_t size_of(Part part) const noexcept = 0;
  virtual void fill(Part part, std::size_t first, std::size_t count, Room& room) const = 0;
  virtual double metric_of(double loss, double share_right) const noexcept = 0;

  std::uint64_t seed() const noexcept { return seed_; }
  Batches& batches() noexcept { return batches_; }
  const Batches& batches() const noexcept { return batches_; }

 private:
  static ModelBatch batch_of(const Room& room, std::size_t size);
  ModelBatch batch_of_step(int worker, std::uint64_t step);

  std::unique_ptr<Model> model_;
  Layout layout_;
  std::uint64_t seed_;
  Batches batches_;
  std::vector<Room> rooms_;                 // one for each worker
  std::vector<std::vector<float>> states_;  // one for each worker
  std::vector<float> evaluation_state_;
  mutable std::once_flag is_drawn_;
  mutable std::vector<float> initial_weights_;  // drawn once: all workers ask for them
};

}  // namespace sparsewire::train
