#include "sparsify/chosen_outside.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"

namespace sparsewire {
namespace {

class ChosenOutside final : public FusedSparsifier {
 public:
  ChosenOutside(std::string name, std::unique_ptr<Sparsifier> sparsifier, const SifterContext& context)
      : name_(std::move(name)), sparsifier_(std::move(sparsifier)), context_(context), step_(context.first_step) {}

  SparsifierTraits traits() const override { return sparsifier_->traits(); }
  double expected_entries() const override { return sparsifier_->expected_entries(); }
  void observe(const SparseVector& sent, std::span<const float> update_at_sent,
               std::span<const std::uint8_t> /*came_back*/) override {
    sparsifier_->observe(sent, update_at_sent);
  }
  bool is_voting() const noexcept override { return sparsifier_->is_voting(); }
  std::optional<float> vote() const noexcept override { return sparsifier_->vote(); }
  void set_vote(float agreed) override { sparsifier_->set_vote(agreed); }
  // Another sparsifier is a null pointer, also if it is from outside too.
  void learn_from(std::span<const Predecessor<FusedSparsifier>> others) override {
    std::vector<Predecessor<Sparsifier>> outside;
    for (const Predecessor<FusedSparsifier>& other : others) {
      const auto* const wrapped = dynamic_cast<const ChosenOutside*>(other.learner);
      const bool is_same = wrapped != nullptr && wrapped->name_ == name_;
      outside.push_back(other.with<Sparsifier>(is_same ? wrapped->sparsifier_.get() : nullptr));
    }
    sparsifier_->learn_from(outside);
  }
  std::uint64_t step() const noexcept override { return step_; }
  void set_step(std::uint64_t step) noexcept override { step_ = step; }

  // Two passes: the sums must be complete before they can be looked at.
  double sift(const kernels::ScaledGradient* gradient, float /*unit*/, ErrorMemory& memory,
              SparseVector& out) override {
    out.clear(memory.size());
    if (const auto bad = memory.accumulate(gradient)) {
      throw_bad_gradient(name_, context_, step_, *gradient, memory, *bad);
    }
    bool has_chosen = false;
    try {
      indices_.clear();
      const std::span<const float> sums = memory.numbers();
      sparsifier_->choose(sums, step_, indices_);
      has_chosen = true;
      check(memory.size());
      std::erase_if(indices_, [&](std::uint32_t index) { return sums[index] == 0; });
      out.indices.assign(indices_.begin(), indices_.end());
      out.values.resize(indices_.size());
      memory.clear_at(out, out.values);
    } catch (...) {
      memory.restore(gradient);
      out.clear(memory.size());
      if (has_chosen) sparsifier_->rewind();
      throw;
    }
    ++step_;
    return memory.accumulated_norm2();
  }

  void undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) override {
    memory.put_back(sent);
    memory.restore(gradient);
    --step_;
    sparsifier_->rewind();
  }

  void serialize(State& state) override {
    state.value("step", step_);
    state.nested("own_state", [&](State& own) { sparsifier_->serialize(own); });  // it may have a "step" too
  }

 private:
  // Throws UsageError unless the chosen indices ascend and are in the model.
  void check(std::size_t size) const {
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      if (indices_[i] >= size) {
        throw UsageError(fmt::format("[{}] chose index {} of a model of {} entries", name_, indices_[i], size));
      }
      if (i > 0 && indices_[i] <= indices_[i - 1]) {
        throw UsageError(
            fmt::format("[{}] chose index {} after {}: the indices must ascend", name_, indices_[i], indices_[i - 1]));
      }
    }
  }

  std::string name_;
  std::unique_ptr<Sparsifier> sparsifier_;
  SifterContext context_;
  std::uint64_t step_;
  std::vector<std::uint32_t> indices_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> wrap(std::string name, std::unique_ptr<Sparsifier> sparsifier,
                                      const SifterContext& context) {
  return std::make_unique<ChosenOutside>(std::move(name), std::move(sparsifier), context);
}

}  // namespace sparsewire
