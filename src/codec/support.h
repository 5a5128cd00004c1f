// What index codecs look at before one is chosen.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "codec/numbers.h"
#include "kernels/frame_plan.h"
#include "kernels/golomb.h"
#include "kernels/stretches.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// The support of a vector that is not full.
class SupportOf {
 public:
  // Valid until the next call, and as long as the vector.
  const Support& look_at(const SparseVector& vector) noexcept;

 private:
  Support support_;
  std::array<std::uint32_t, kernels::kMostNumberSample> gaps_;
  std::array<std::uint32_t, kernels::kMostDivisorSample> divisor_gaps_;
};

// The divisor of Golomb's code for these indices, and the code of `adaptive`. Each is searched for once.
kernels::GolombCode divisor_for(const Support& support);
NumberChoice number_code_for(const Support& support);

}  // namespace sparsewire
