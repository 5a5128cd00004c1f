// What index codecs look at before one is chosen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "codec/numbers.h"
#include "kernels/golomb.h"
#include "kernels/stretches.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// What index codecs have to know to say how long they would be. A gap is the number of indices left out before one.
struct Support {
  std::uint64_t dim = 0;
  std::size_t count = 0;   // of indices
  std::uint32_t last = 0;  // index
  std::size_t runs = 0;    // of consecutive indices
  // Gaps at the places of kernels::number_sample(count) and kernels::divisor_sample(count).
  std::span<const std::uint32_t> gaps;
  std::span<const std::uint32_t> divisor_gaps;
  const Draw* draw = nullptr;  // how the indices were drawn; null: they were not
  // Of Golomb's code and of `adaptive`, when they have been searched for.
  mutable std::optional<kernels::GolombCode> divisor;
  mutable std::optional<NumberChoice> numbers;

  std::uint64_t sum_of_gaps() const noexcept { return count == 0 ? 0 : std::uint64_t{last} + 1 - count; }
};

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
