#include <utility>

#include "loop/replica.h"
#include "loop/replica_arrays.h"
#include "sparsewire/support/pages.h"
#include "text/environment.h"

namespace sparsewire::train {
namespace {

class DeviceReplica final : public Replica {
 public:
  DeviceReplica(const ReplicaPlan& plan, const DevicePlace& place, std::unique_ptr<ReplicaArrays> arrays)
      : problem_(plan.problem),
        worker_(plan.worker),
        place_(place),
        arrays_(std::move(arrays)),
        weights_(arrays_->allocate()),
        gradient_(arrays_->allocate()),
        on_host_(problem_.layout().dim()) {
    make(inner_, plan.optimiser);
    if (!plan.outer_optimiser.empty()) make(outer_, plan.outer_optimiser);
  }

  void set_weights(std::span<const float> weights) override {
    arrays_->write(weights, weights_);
    is_on_host_ = false;
  }
  std::span<const float> weights() override {
    if (!is_on_host_) arrays_->read(weights_, on_host_);
    is_on_host_ = true;
    return on_host_;
  }

  double find_gradient(std::uint64_t step) override {
    return problem_.gradient_on_device(worker_, step, is_local_ ? local_ : weights_, gradient_);
  }
  void begin_local_steps() override {
    is_local_ = true;
    if (local_ == nullptr) local_ = arrays_->allocate();
    arrays_->copy(weights_, local_);
  }
  void local_step(double lr) override {
    arrays_->apply(inner_.optimiser->begin_step({.lr = lr}), gradient_, local_, inner_.kept[0], inner_.kept[1]);
  }
  void end_local_steps() override {
    is_local_ = false;
    arrays_->subtract(weights_, local_, gradient_);
  }

  Gradient gradient() const override {
    Gradient gradient(gradient_, NumberType::f32, on_host_.size());
    gradient.device = place_.device;
    gradient.stream = place_.stream;
    return gradient;
  }

  void apply_update(const Worker& worker, const Applied& how) override {
    is_on_host_ = false;
    const Rule& rule = outer_.optimiser ? outer_ : inner_;
    const OptimiserStep step = rule.optimiser->begin_step(how);
    if (step.is_sparse() && !worker.stats().went_dense) return arrays_->apply_sparse(step, worker.update(), weights_);
    worker.write_update(numbers(gradient_));
    arrays_->apply(step, gradient_, weights_, rule.kept[0], rule.kept[1]);
  }

  std::vector<std::byte> save(Optimises what) override {
    const Rule& rule = what == Optimises::gradients ? inner_ : outer_;
    if (!rule.optimiser) return {};
    const std::vector<std::span<float>> host = rule.optimiser->arrays();
    for (std::size_t i = 0; i < host.size(); ++i) arrays_->read(rule.kept[i], host[i]);
    return rule.optimiser->save();
  }
  void load(Optimises what, std::span<const std::byte> bytes) override {
    const Rule& rule = what == Optimises::gradients ? inner_ : outer_;
    if (!rule.optimiser) return;
    rule.optimiser->load(bytes);
    const std::vector<std::span<float>> host = rule.optimiser->arrays();
    for (std::size_t i = 0; i < host.size(); ++i) arrays_->write(host[i], rule.kept[i]);
  }

 private:
  // An optimiser, whose own arrays on the host are used to save and load only, and its arrays on the device.
  struct Rule {
    std::unique_ptr<Optimiser> optimiser;
    float* kept[2] = {nullptr, nullptr};
  };

  void make(Rule& rule, const std::string& spec) {
    rule.optimiser = make_optimiser(spec, problem_.layout().dim());
    for (std::size_t i = 0; i < rule.optimiser->arrays().size(); ++i) rule.kept[i] = arrays_->allocate();
  }

  WritableNumbers numbers(float* array) const {
    WritableNumbers numbers(array, NumberType::f32, on_host_.size());
    numbers.device = place_.device;
    numbers.stream = place_.stream;
    return numbers;
  }

  Problem& problem_;
  int worker_;
  DevicePlace place_;
  std::unique_ptr<ReplicaArrays> arrays_;
  Rule inner_;
  Rule outer_;      // of exchanges between local steps; or none
  float* weights_;  // on the device; so are the next two
  float* gradient_;
  float* local_ = nullptr;
  bool is_local_ = false;
  bool is_on_host_ = false;
  LongVector on_host_;  // the weights
};

}  // namespace

std::unique_ptr<Replica> make_device_replica(const ReplicaPlan& plan) {
  const std::optional<DevicePlace> place = plan.problem.device_of(plan.worker);
  if (!place || plan.clip != 0 || environment::sifts_on_host()) return nullptr;
  auto arrays = make_replica_arrays(place->device, place->stream, plan.problem.layout().dim());
  if (!arrays) return nullptr;
  return std::make_unique<DeviceReplica>(plan, *place, std::move(arrays));
}

}  // namespace sparsewire::train
