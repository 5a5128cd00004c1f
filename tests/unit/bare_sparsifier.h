// A sparsifier without a Sifter around it, for tests: the caller has the memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsify/fused_sparsifier.h"

namespace sparsewire {

class BareSparsifier {
 public:
  BareSparsifier(const std::string& spec, const SifterContext& context)
      : sparsifier_(make_sparsifier(spec, context)), memory_(context.layout.dim(), context.pool) {}

  // Returns ||sums||^2.
  double sift(const kernels::ScaledGradient& gradient, std::vector<float>& memory, SparseVector& out) {
    memory_.write(0, memory);
    try {
      const double accumulated_norm2 = sparsifier_->sift(&gradient, gradient.scale, memory_, out);
      memory_.read(0, memory);
      return accumulated_norm2;
    } catch (...) {
      memory_.read(0, memory);
      throw;
    }
  }
  void undo(const kernels::ScaledGradient& gradient, std::vector<float>& memory, const SparseVector& sent) {
    memory_.write(0, memory);
    sparsifier_->undo(&gradient, memory_, sent);
    memory_.read(0, memory);
  }
  void observe(const SparseVector& sent, std::span<const float> update, std::span<const std::uint8_t> came_back = {}) {
    sparsifier_->observe(sent, update, came_back);
  }

  void serialize(State& state) { sparsifier_->serialize(state); }

  SparsifierTraits traits() const { return sparsifier_->traits(); }
  bool is_voting() const noexcept { return sparsifier_->is_voting(); }
  std::optional<float> vote() const noexcept { return sparsifier_->vote(); }
  void set_vote(float agreed) { sparsifier_->set_vote(agreed); }
  std::uint64_t step() const noexcept { return sparsifier_->step(); }

 private:
  std::unique_ptr<FusedSparsifier> sparsifier_;
  ErrorMemory memory_;
};

inline std::unique_ptr<BareSparsifier> make_bare(const std::string& spec, const SifterContext& context) {
  return std::make_unique<BareSparsifier>(spec, context);
}

}  // namespace sparsewire
