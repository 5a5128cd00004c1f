// How an update changes the weights. The update is the result of the exchange, the same on all workers. Weight decay
// and momentum are applied after it, so they are not sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "loop/optimiser_step.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/state.h"

namespace sparsewire::train {

struct Applied {
  double lr = 1;
  bool holds_lr = false;  // the update is lr*gradient already (feedback ef:scale=lr); for plain optimisers only
};

// Computes in double, entry by entry; each number that is kept is rounded to float once.
class Optimiser {
 public:
  virtual ~Optimiser() = default;

  // One step. REQUIRES: both have as many entries as the optimiser was made for.
  // Throws UsageError if `how.holds_lr` and the optimiser is not plain.
  void apply(std::span<const float> update, const Applied& how, std::span<float> weights) {
    apply_step(begin_step(how), update, weights);
  }
  // The same in two parts, for entries that are elsewhere: the numbers of the step, which is counted here; and the
  // entries.
  virtual OptimiserStep begin_step(const Applied& how) = 0;
  void apply_step(const OptimiserStep& step, std::span<const float> update, std::span<float> weights);
  // What it keeps of each entry: nothing, the velocity, or mean and square.
  virtual std::vector<std::span<float>> arrays() = 0;
  // Saves or restores everything that later steps depend on. Throws UsageError if it was saved by another kind of
  // optimiser or for another number of weights.
  virtual void serialize(State& state) = 0;
  // The same as bytes.
  std::vector<std::byte> save();
  void load(std::span<const std::byte> bytes);
  // Stochastic gradient descent without momentum: the only one for memories that hold lr*gradient.
  virtual bool is_plain() const noexcept = 0;
  virtual bool has_momentum() const noexcept = 0;
};

// Applies a step to the entries of the update. REQUIRES: step.is_sparse().
void apply_sparse(const OptimiserStep& step, const SparseVector& update, std::span<float> weights);

// Makes an optimiser from `name:key=value,key=value`, for `dim` weights. Throws UsageError.
std::unique_ptr<Optimiser> make_optimiser(std::string_view spec, std::uint64_t dim);

struct OptimiserInfo {
  std::string_view name;
  std::string_view summary;  // in a few words
  std::string_view example;
};
// Every optimiser there is.
std::span<const OptimiserInfo> optimisers() noexcept;

}  // namespace sparsewire::train
