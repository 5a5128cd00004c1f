// Checks the result of a step with plain loops and std::nth_element, without the library's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

struct Answer {
  std::string_view sparsifier;
  std::size_t k = 0;    // of topk, regtopk, rtopk, randomk
  std::size_t r = 0;    // of rtopk
  float threshold = 0;  // of threshold
  std::span<const float> before;
  std::span<const float> gradient;
  std::span<const float> after;
  const SparseVector& sent;
  std::span<const std::uint32_t> sent_last_step;  // for regtopk
};

// Describes what is wrong with the answer; empty if it is right. COST: two arrays of the size of the gradient, about a
// second for 25 million entries.
std::string fault(const Answer& answer);

}  // namespace sparsewire::bench
