#include <algorithm>
#include <cmath>
#include <functional>

#include "loop/replica.h"
#include "sparsewire/support/pages.h"

namespace sparsewire::train {
namespace {

class HostReplica final : public Replica {
 public:
  explicit HostReplica(const ReplicaPlan& plan)
      : problem_(plan.problem),
        worker_(plan.worker),
        clip_(plan.clip),
        optimiser_(make_optimiser(plan.optimiser, problem_.layout().dim())),
        weights_(problem_.layout().dim()),
        gradient_(weights_.size()) {
    if (!plan.outer_optimiser.empty()) outer_ = make_optimiser(plan.outer_optimiser, weights_.size());
  }

  void set_weights(std::span<const float> weights) override {
    std::copy(weights.begin(), weights.end(), weights_.begin());
  }
  std::span<const float> weights() override { return weights_; }

  double find_gradient(std::uint64_t step) override {
    const double loss = problem_.gradient(worker_, step, is_local_ ? local_ : weights_, gradient_);
    clip();
    return loss;
  }
  void begin_local_steps() override {
    is_local_ = true;
    local_ = weights_;
  }
  void local_step(double lr) override { optimiser_->apply(gradient_, {.lr = lr}, local_); }
  void end_local_steps() override {
    is_local_ = false;
    std::transform(weights_.begin(), weights_.end(), local_.begin(), gradient_.begin(), std::minus<>());
  }

  Gradient gradient() const override { return gradient_; }

  void apply_update(const Worker& worker, const Applied& how) override {
    Optimiser& optimiser = outer_ ? *outer_ : *optimiser_;
    const OptimiserStep step = optimiser.begin_step(how);
    const SparseVector& update = worker.update();
    if (update.is_full()) {
      optimiser.apply_step(step, update.values, weights_);
    } else if (step.is_sparse()) {
      apply_sparse(step, update, weights_);
    } else {
      worker.write_update(gradient_);
      optimiser.apply_step(step, gradient_, weights_);
    }
  }

  std::vector<std::byte> save(Optimises what) override {
    const auto& one = what == Optimises::gradients ? optimiser_ : outer_;
    return one ? one->save() : std::vector<std::byte>();
  }
  void load(Optimises what, std::span<const std::byte> bytes) override {
    const auto& one = what == Optimises::gradients ? optimiser_ : outer_;
    if (one) one->load(bytes);
  }

 private:
  // A gradient that is not finite is left to the worker, whose error names the index.
  void clip() {
    if (clip_ == 0) return;
    double norm2 = 0;
    for (const float g : gradient_) norm2 += static_cast<double>(g) * static_cast<double>(g);
    const double norm = std::sqrt(norm2);
    if (!(norm > clip_) || !std::isfinite(norm)) return;
    const double factor = clip_ / norm;
    for (float& g : gradient_) g = static_cast<float>(static_cast<double>(g) * factor);
  }

  Problem& problem_;
  int worker_;
  double clip_;
  std::unique_ptr<Optimiser> optimiser_;
  std::unique_ptr<Optimiser> outer_;  // or null
  LongVector weights_;                // on a cache line, as libtorch wants it (model.h); so are the next two
  LongVector gradient_;
  LongVector local_;  // this worker's weights during local steps
  bool is_local_ = false;
};

}  // namespace

std::unique_ptr<Replica> make_host_replica(const ReplicaPlan& plan) { return std::make_unique<HostReplica>(plan); }

}  // namespace sparsewire::train
