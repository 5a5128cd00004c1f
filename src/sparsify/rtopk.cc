// Keeps k random entries of the r entries of largest magnitude; every worker draws them again in every step.
//
// Barnes, Inan, Isik, Ozgur, rTop-k: a statistical estimation approach to distributed SGD, 2020. r = k is Top-k, r = d
// is Random-k. Of the r entries, the k with the smallest hash of (seed, role, rank, step, index) are sent.
#include <fmt/core.h>

#include <cmath>

#include "kernels/random.h"
#include "sparsewire/support/philox.h"
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/top_selector.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

// Ranks by a random hash: the smallest is the best.
class RandomScore final : public Score {
 public:
  explicit RandomScore(const Stream& stream) : stream_(stream) {}

  void rank(const std::uint32_t* indices, const float*, std::size_t n, std::uint32_t* keys) const noexcept override {
    kernels::hash(stream_, indices, n, keys);
    for (std::size_t i = 0; i < n; ++i) keys[i] = ~keys[i];
  }

 private:
  Stream stream_;
};

class RTopK final : public UnitSparsifier {
 public:
  RTopK(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, context.scope), budget_(spec, model_size(), false, model_size()), top_(units()) {
    const auto r = spec.number("r", {.min = 1});
    const auto r_ratio = spec.number("r_ratio", kRatioRange);
    if (r && r_ratio) spec.fail("takes r= or r_ratio=, not both");
    if (r_ratio && *r_ratio < budget_.ratio(~std::uint64_t{0})) {
      spec.fail(fmt::format("r_ratio={} is not in [ratio={}, 1]", *r_ratio, budget_.ratio(~std::uint64_t{0})));
    }
    r_ratio_ = r_ratio.value_or(0);
    r_ = r.value_or(2);
  }

 private:
  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                       UnitPass& pass) override {
    const std::size_t k = budget_.k(step(), unit.size);
    if (const auto bad = top_.take(u, unit, gradient, r_of(k, unit.size), magnitude_score(), pass)) return bad;
    pass.rank(score());
    pass.keep_best(k);
    return std::nullopt;
  }
  UnitChoice choice(const Unit& unit) const override {
    const std::size_t k = budget_.k(step(), unit.size);
    return {.k = r_of(k, unit.size), .second_k = k};
  }
  std::optional<double> choice_depends_on() const override { return budget_.ratio(step()); }
  std::optional<kernels::SecondChoice> second_choice() const override {
    return kernels::SecondChoice{.draw = stream()};
  }
  bool narrows() const override { return true; }
  void narrow(const Unit& unit, Candidates& chosen) override {
    chosen.rank(score());
    chosen.keep_best(budget_.k(step(), unit.size));
  }

  Stream stream() const {
    return {context().seed, static_cast<std::uint32_t>(context().role), static_cast<std::uint32_t>(context().rank),
            step()};
  }
  RandomScore score() const { return RandomScore(stream()); }

  std::size_t r_of(std::size_t k, std::size_t n) const noexcept {
    if (r_ratio_ > 0) return std::max(k, count_of(r_ratio_, n));
    const double r = std::floor(r_ * static_cast<double>(k) + 0.5);
    return r >= static_cast<double>(n) ? n : static_cast<std::size_t>(r);
  }

  double expected_in(const Unit& unit) const override { return budget_.expected(unit.size); }

  Budget budget_;
  double r_ = 0;
  double r_ratio_ = 0;
  TopSelector top_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_rtopk(Spec& spec, const SifterContext& context) {
  return std::make_unique<RTopK>(spec, context);
}

}  // namespace sparsewire
