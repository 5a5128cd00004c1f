// How many entries a unit sends: the keys ratio=, k=, warmup_from= and warmup_steps=, which many sparsifiers have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsewire/spec.h"

namespace sparsewire {

// max(1, floor(ratio*n + 0.5)), at most n.
std::size_t count_of(double ratio, std::size_t n) noexcept;

class Budget {
 public:
  // Reads the keys. `k=` applies to `model_size` entries, and a smaller unit gets its share of it; with `per_unit` it
  // applies to each unit separately. `limit` is the largest k that is allowed. Throws UsageError.
  Budget(Spec& spec, std::size_t model_size, bool per_unit, std::size_t limit);

  // The entries that a unit of `unit_size` sends in a step.
  std::size_t k(std::uint64_t step, std::size_t unit_size) const noexcept;
  // k after the warm-up.
  double expected(std::size_t unit_size) const noexcept { return static_cast<double>(k(~std::uint64_t{0}, unit_size)); }
  // The ratio of a step, including the warm-up; 0 if k= was given.
  double ratio(std::uint64_t step) const noexcept;

 private:
  double ratio_ = 0;
  double warmup_from_ = 0;
  std::uint64_t warmup_steps_ = 0;
  std::uint64_t k_ = 0;
  std::size_t model_size_;
  bool per_unit_;
};

}  // namespace sparsewire
