// Replicas on a device beside replicas on the host: the same bits, also when one continues what the other has saved.
#include "loop/replica.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "loop/replica_arrays.h"
#include "sparsewire/transport.h"
#include "unit/device/arrays.h"

namespace sparsewire::train::device_replica_test {
namespace {

constexpr int kWorkers = 2;

// A problem of the processor that takes weights and leaves gradients on the device.
class OnDevice final : public Problem {
 public:
  explicit OnDevice(Problem& inner) : inner_(inner) {
    for (int worker = 0; worker < kWorkers; ++worker) {
      arrays_.push_back(make_replica_arrays(device_test::kDevice, device_test::stream(), inner.layout().dim()));
    }
  }

  const Layout& layout() const noexcept override { return inner_.layout(); }
  void initial_weights(std::span<float> weights) const override { inner_.initial_weights(weights); }
  double gradient(int worker, std::uint64_t step, std::span<const float> weights, std::span<float> gradient) override {
    return inner_.gradient(worker, step, weights, gradient);
  }
  std::optional<DevicePlace> device_of(int /*worker*/) override {
    return DevicePlace{device_test::kDevice, device_test::stream()};
  }
  double gradient_on_device(int worker, std::uint64_t step, const float* weights, float* gradient) override {
    ReplicaArrays& arrays = *arrays_[static_cast<std::size_t>(worker)];
    std::vector<float> here(layout().dim());
    std::vector<float> found(here.size());
    arrays.read(weights, here);
    const double loss = inner_.gradient(worker, step, here, found);
    arrays.write(found, gradient);
    return loss;
  }
  Score evaluate(Part part, std::span<const float> weights) override { return inner_.evaluate(part, weights); }
  std::string_view metric() const noexcept override { return inner_.metric(); }

 private:
  Problem& inner_;
  std::vector<std::unique_ptr<ReplicaArrays>> arrays_;
};

struct Setting {
  std::string optimiser = "sgd";
  std::uint64_t local_steps = 1;
  std::string outer_optimiser = {};
  WorkerConfig worker = {.sparsifier = "topk:ratio=0.1", .exchange = "server"};
};

// Some steps of a training. Where the replica is changes after so many.
std::vector<float> train(const Setting& setting, bool on_device, std::uint64_t change_after = ~0ULL) {
  const auto host = make_problem("linreg:dim=40,samples=30", {.workers = kWorkers, .seed = 3});
  OnDevice problem(*host);
  std::vector<float> result;
  run_on_threads(kWorkers, [&](Transport& transport) {
    const auto make = [&](bool there) {
      const ReplicaPlan plan{.problem = problem,
                             .worker = transport.rank(),
                             .optimiser = setting.optimiser,
                             .outer_optimiser = setting.local_steps > 1 && setting.outer_optimiser.empty()
                                                    ? "sgd"
                                                    : setting.outer_optimiser};
      return there ? make_device_replica(plan) : make_host_replica(plan);
    };
    auto replica = make(on_device);
    std::vector<float> start(problem.layout().dim());
    problem.initial_weights(start);
    replica->set_weights(start);
    const bool holds_lr = setting.worker.feedback == "ef:scale=lr";
    Worker worker(setting.worker, problem.layout(), transport);
    for (std::uint64_t step = 0; step < 9; ++step) {
      if (step == change_after) {
        const std::vector<std::byte> optimiser = replica->save(Optimises::gradients);
        const std::vector<std::byte> outer = replica->save(Optimises::exchanges);
        const std::vector<float> weights(replica->weights().begin(), replica->weights().end());
        replica = make(!on_device);
        replica->set_weights(weights);
        replica->load(Optimises::gradients, optimiser);
        replica->load(Optimises::exchanges, outer);
      }
      if (setting.local_steps == 1) {
        replica->find_gradient(step);
        worker.step(replica->gradient(), {.lr = 0.01F, .update_on_device = true});
        replica->apply_update(worker, {.lr = 0.01, .holds_lr = holds_lr});
        continue;
      }
      replica->begin_local_steps();
      for (std::uint64_t h = 0; h < setting.local_steps; ++h) {
        replica->find_gradient(step * setting.local_steps + h);
        replica->local_step(0.01);
      }
      replica->end_local_steps();
      worker.step(replica->gradient(), {.update_on_device = true});
      replica->apply_update(worker, {.lr = setting.outer_optimiser.empty() ? 1 : 0.5});
    }
    if (transport.rank() == 0) result.assign(replica->weights().begin(), replica->weights().end());
  });
  return result;
}

const Setting kSettings[] = {
    {},
    {.optimiser = "sgd:weight_decay=0.1"},
    {.optimiser = "sgd:momentum=0.9"},
    {.optimiser = "sgd:momentum=0.9,nesterov=true,weight_decay=0.1"},
    {.optimiser = "adam:weight_decay=0.1"},
    {.optimiser = "adamw"},
    {.worker = {.sparsifier = "dense", .exchange = "dense"}},
    {.optimiser = "sgd:momentum=0.9", .worker = {.sparsifier = "dense", .exchange = "dense"}},
    {.worker = {.sparsifier = "topk:ratio=0.1",
                .feedback = "ef:scale=lr",
                .exchange = "server",
                .downlink = "topk:ratio=0.1"}},
    {.local_steps = 3},
    {.local_steps = 2, .worker = {.sparsifier = "dense", .exchange = "dense"}},
    {.optimiser = "sgd:momentum=0.5", .local_steps = 3},
    {.optimiser = "adamw", .local_steps = 2},
    {.optimiser = "adamw", .local_steps = 2, .outer_optimiser = "sgd:momentum=0.9,nesterov=true"},
};

TEST(ReplicaOnADevice, TrainsWithTheBitsOfTheHost) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(setting.optimiser + ", " + setting.worker.sparsifier);
    EXPECT_EQ(train(setting, true), train(setting, false));
  }
}

TEST(ReplicaOnADevice, ContinuesWhatOneOnTheHostHasSavedAndTheOtherWayRound) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(setting.optimiser + ", " + setting.worker.sparsifier);
    const std::vector<float> expected = train(setting, false);
    EXPECT_EQ(train(setting, false, 4), expected);
    EXPECT_EQ(train(setting, true, 4), expected);
  }
}

// The entries of an update are on their way to the device when those of the next one are given.
TEST(ReplicaOnADevice, AppliesUpdatesThatFollowOneAnother) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  const std::size_t size = device_test::is_fast() ? 20'000'000 : 20'000;
  const auto arrays = make_replica_arrays(device_test::kDevice, device_test::stream(), size);
  float* const weights = arrays->allocate();
  float* const other = arrays->allocate();
  std::vector<float> result(size);
  for (const bool is_full : {false, true}) {
    arrays->write(result = std::vector<float>(size, 1.0F), weights);
    for (int i = 0; i < 20; ++i) arrays->copy(weights, other);  // so that the device is busy for a while
    for (const float value : {1.0F, 4.0F, 16.0F}) {
      SparseVector update;
      update.dim = is_full ? 1'000 : size;
      for (std::uint32_t i = 0; i < 1'000; ++i) {
        if (!is_full) update.indices.push_back(7 * i + static_cast<std::uint32_t>(value));
        update.values.push_back(value);
      }
      arrays->apply_sparse({.rate = 0.5}, update, weights);
    }
    std::vector<float> expected(size, 1.0F);
    for (const std::size_t value : std::initializer_list<std::size_t>{1, 4, 16}) {
      for (std::size_t i = 0; i < 1'000; ++i) expected[is_full ? i : 7 * i + value] -= 0.5F * static_cast<float>(value);
    }
    arrays->read(weights, result);
    EXPECT_TRUE(result == expected) << is_full;
  }
}

TEST(ReplicaOnADevice, IsOnTheHostIfTheGradientIsThereOrHasToBeClipped) {
  if (const std::string why = device_test::why_none(); !why.empty()) GTEST_SKIP() << why;
  const auto host = make_problem("linreg:dim=40,samples=30", {.workers = kWorkers});
  OnDevice problem(*host);
  EXPECT_EQ(make_device_replica({.problem = *host, .optimiser = "sgd"}), nullptr);
  EXPECT_EQ(make_device_replica({.problem = problem, .optimiser = "sgd", .clip = 1}), nullptr);
  EXPECT_NE(make_device_replica({.problem = problem, .optimiser = "sgd"}), nullptr);
}

}  // namespace
}  // namespace sparsewire::train::device_replica_test
