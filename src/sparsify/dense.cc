// Keeps everything: the baseline, run by the same code as the others. The vector is full and has no indices.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/spec.h"
#include "core/state.h"
#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/registry.h"
#include "sparsify/units.h"

namespace sparsewire {
namespace {

class Dense final : public Sparsifier {
 public:
  explicit Dense(const SifterContext& context) : context_(context), step_(context.first_step) {
    const auto units = make_units(context.layout, {});
    if (!units.empty()) unit_ = units.front();
    norm2_.resize(unit_.blocks.size());
    bad_.resize(unit_.blocks.size());
  }

  SiftNorms sift(Gradient gradient, std::span<float> memory, SparseVector& out) override {
    check_size(gradient, memory);
    out.dim = context_.layout.dim();
    out.indices.clear();
    out.draw.units.clear();
    out.values.resize(gradient.size);  // without clear(): that would fill it with zeros in every step
    for_each_block([&](std::size_t b, const Block& block) {
      std::array<double, kernels::kLanes> lanes{};
      bad_[b] =
          kernels::accumulate_into(gradient, block.begin, block.size, memory.data(), out.values.data(), lanes.data());
      norm2_[b] = kernels::sum_lanes(lanes.data());
    });
    SiftNorms sifted;
    for (std::size_t b = 0; b < unit_.blocks.size(); ++b) {
      if (bad_[b] != kernels::kNoneBad) {
        out.clear(out.dim);
        throw_bad_gradient("dense", context_, step_, gradient, memory, bad_[b]);
      }
      sifted.accumulated_norm2 += norm2_[b];
    }
    for_each_block(
        [&](std::size_t, const Block& block) { std::fill_n(memory.data() + block.begin, block.size, 0.0F); });
    sifted.sent_norm2 = sifted.accumulated_norm2;
    ++step_;
    return sifted;
  }

  void undo(Gradient gradient, std::span<float> memory, const SparseVector& sent) override {
    check_size(gradient, memory);
    if (step_ == context_.first_step) throw UsageError("[dense] there is no step to undo");
    std::copy(sent.values.begin(), sent.values.end(), memory.begin());
    kernels::subtract(gradient, 0, gradient.size, memory.data());
    --step_;
  }

  std::uint64_t step() const noexcept override { return step_; }
  double expected_entries() const override { return static_cast<double>(context_.layout.dim()); }

  void serialize(State& state) override { state.value("step", step_); }

 private:
  template <class Work>
  void for_each_block(Work work) {
    const std::size_t threads = context_.pool == nullptr ? 1 : static_cast<std::size_t>(context_.pool->size());
    const auto share = [&](int thread) {
      for (std::size_t b = static_cast<std::size_t>(thread); b < unit_.blocks.size(); b += threads) {
        work(b, unit_.blocks[b]);
      }
    };
    context_.pool == nullptr ? share(0) : context_.pool->run(share);
  }

  void check_size(const Gradient& gradient, std::span<const float> memory) const {
    const std::uint64_t dim = context_.layout.dim();
    if (gradient.size == dim && memory.size() == dim) return;
    throw UsageError(fmt::format("[dense] a gradient of {} and a memory of {} entries do not fit a layout of {}",
                                 gradient.size, memory.size(), dim));
  }

  SifterContext context_;
  std::uint64_t step_;
  Unit unit_;
  std::vector<double> norm2_;  // for each block
  std::vector<std::size_t> bad_;
};

}  // namespace

std::unique_ptr<Sparsifier> make_dense(Spec&, const SifterContext& context) { return std::make_unique<Dense>(context); }

}  // namespace sparsewire
