// Keeps everything: the baseline, run by the same code as the others. The vector is full and has no indices.
#include "sparsify/bad_gradient.h"
#include "sparsify/fused_sparsifier.h"
#include "sparsify/registry.h"

namespace sparsewire {
namespace {

class Dense final : public FusedSparsifier {
 public:
  explicit Dense(const SifterContext& context) : context_(context), step_(context.first_step) {}

  double sift(const kernels::ScaledGradient* gradient, float /*unit*/, ErrorMemory& memory,
              SparseVector& out) override {
    out.dim = memory.size();
    out.indices.clear();
    out.draw.units.clear();
    out.values.resize(memory.size());  // without clear(): that would fill it with zeros in every step
    if (const auto bad = memory.take_everything(gradient, out.values)) {
      out.clear(out.dim);
      throw_bad_gradient("dense", context_, step_, *gradient, memory, *bad);
    }
    ++step_;
    return memory.accumulated_norm2();
  }

  std::optional<SiftedAll> sift_all(const kernels::ScaledGradient& gradient, ErrorMemory& memory) override {
    if (const auto bad = memory.accumulate(&gradient)) {
      throw_bad_gradient("dense", context_, step_, gradient, memory, *bad);
    }
    const double norm2 = memory.accumulated_norm2();
    try {
      const Gradient numbers = memory.take_all();
      ++step_;
      return SiftedAll{.accumulated_norm2 = norm2, .numbers = numbers};
    } catch (...) {  // the device has no room for another array
      memory.restore(&gradient);
      throw;
    }
  }

  void undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) override {
    memory.put_back(sent);
    memory.restore(gradient);
    --step_;
  }

  std::uint64_t step() const noexcept override { return step_; }
  void set_step(std::uint64_t step) noexcept override { step_ = step; }
  double expected_entries() const override { return static_cast<double>(context_.layout.dim()); }
  void serialize(State& state) override { state.value("step", step_); }

 private:
  SifterContext context_;
  std::uint64_t step_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_dense(Spec&, const SifterContext& context) {
  return std::make_unique<Dense>(context);
}

}  // namespace sparsewire
