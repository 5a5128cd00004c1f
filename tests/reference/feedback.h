// A sparsifier with its error memory and its feedback, written directly from the definitions.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "reference/reference.h"

namespace sparsewire::reference {

struct Totals {
  std::uint64_t step = 0;
  std::uint64_t entries = 0;
  double sent_norm2 = 0;
  double memory_norm2 = 0;
  double total_error = 0;
};

class Feedback {
 public:
  Feedback(std::string_view sparsifier, std::string_view feedback, const Setting& setting);

  Round sift(std::span<const float> gradient, float lr = 1);
  void observe(const SparseVector& sent, std::span<const float> update) { sparsifier_->observe(sent, update); }

  const Totals& totals() const { return totals_; }
  std::vector<float>& memory() { return memory_; }
  std::vector<float>& velocity() { return velocity_; }

 private:
  Round sift_velocity(std::span<const float> gradient);

  const Keys keys_;
  const int ranks_;
  std::unique_ptr<Reference> sparsifier_;
  std::vector<float> memory_;
  std::vector<float> velocity_;  // empty unless the feedback is momentum
  Totals totals_;
};

}  // namespace sparsewire::reference
