// The learning rate of each step. It depends on the step alone, so checkpoints need not save it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

namespace sparsewire::train {

class Schedule {
 public:
  // `lr`: the learning rate of step 0, 1, ...
  explicit Schedule(std::function<double(std::uint64_t step)> lr) : lr_(std::move(lr)) {}

  double lr(std::uint64_t step) const { return lr_(step); }

 private:
  std::function<double(std::uint64_t)> lr_;
};

// Makes a schedule from `name:key=value,key=value` for a training of `steps` steps at learning rate `lr`:
//   constant                       lr
//   step:every=1000,factor=0.1     lr * factor^floor(step/every); defaults: a third of the steps, 0.1
//   cosine:min=0                   half a cosine from lr, just after the warm-up, to `min` at step `steps`
//   inverse:offset=100             lr * offset/(offset + t), t steps after the warm-up; default: a tenth of the steps
// All take warmup=N: steps 0 ... N-1 have lr/N, 2*lr/N, ..., lr instead (with `step`: times its factor).
// Throws UsageError.
Schedule make_schedule(std::string_view spec, double lr, std::uint64_t steps);

struct ScheduleInfo {
  std::string_view name;
  std::string_view summary;  // in a few words
  std::string_view example;
};
// Every schedule there is.
std::span<const ScheduleInfo> schedules() noexcept;

}  // namespace sparsewire::train
