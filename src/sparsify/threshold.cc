// Keeps every entry with |a| >= lambda, one constant lambda for all tensors and the whole training.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021: under a budget for the whole
// training nothing has a smaller total error. lambda is given, follows a rule, or is measured. To measure it, Top-k
// runs for about 1/ratio steps (error feedback raises the k-th magnitude for that long); lambda is the median of the
// k-th magnitudes over the last tenth of these steps.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/top_selector.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;  // a calibration may take

class Threshold final : public UnitSparsifier {
 public:
  Threshold(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, Scope::model),  // a constant threshold chooses the same entries by layer
        top_(units()) {
    constexpr double kLargest = 3.4028234663852886e38;
    const auto lambda = spec.number("lambda", {.min = 0, .max = kLargest});
    const auto ratio = spec.number("ratio", kRatioRange);
    if (lambda.has_value() == ratio.has_value()) {
      spec.fail_on_finish(lambda ? "takes lambda= or ratio=, not both"
                                 : "needs lambda= at least 0 or ratio= in (0, 1]");
    }
    const bool by_rule = spec.choice("rule", {"calibrate", "sqrt"}) == "sqrt";
    const auto calibrate = spec.integer("calibrate", 1, kMostSteps);
    if (lambda && (spec.has("rule") || calibrate)) spec.fail("rule= and calibrate= go with ratio=, not with lambda=");
    if (by_rule && calibrate) spec.fail("takes rule=sqrt or calibrate=, not both");
    if (lambda) lambda_ = static_cast<float>(*lambda);
    if (lambda || !ratio) return;
    ratio_ = *ratio;
    k_ =
        std::max<std::size_t>(1, count_of(*ratio, sparse_size()));  // not 0 for an empty region: the rule divides by it
    if (by_rule) {
      by_rule_ = rule_ = true;
    } else {
      calibrate_ = calibrate.value_or(static_cast<std::uint64_t>(std::min(std::ceil(1 / *ratio), double{kMostSteps})));
    }
  }

  // Remembers also with a rule: with scale=lr the first learning rate sets lambda.
  SparsifierTraits traits() const override { return {.entries_vary = true, .remembers = by_rule_ || calibrate_ > 0}; }
  bool is_voting() const noexcept override { return voting_; }
  // A k-th magnitude of 0 says that there were fewer than k entries to measure: any threshold suits this rank.
  std::optional<float> vote() const noexcept override {
    const bool has_measured = voting_ && sparse_size() > 0 && lambda_ > 0;
    return has_measured ? std::optional(lambda_) : std::nullopt;
  }
  void set_vote(float agreed) override { lambda_ = agreed; }

  void learn_from(std::span<const Predecessor<FusedSparsifier>> others) override {
    if (ratio_ == 0) return;  // lambda is given
    forget();
    Mean mean;
    for (const Predecessor<FusedSparsifier>& other : others) {
      const auto* const from = dynamic_cast<const Threshold*>(other.learner);
      if (from == nullptr || from->ratio_ != ratio_ || from->by_rule_ != by_rule_ || from->calibrate_ != calibrate_) {
        return;
      }
      if (other.only_options_changed) {
        if (from->k_ == k_) continue_from(*from);
        return;
      }
      if (by_rule_ || from->calibrating()) return;  // the rule: k is another one now
      if (from->lambda_ > 0) mean.add(from->lambda_, static_cast<double>(other.entries));  // 0: it has no vote either
    }
    if (!(mean.weight > 0)) return;
    lambda_ = static_cast<float>(mean.sum / mean.weight);
    // As after a calibration in which each step gave this lambda.
    measured_steps_ = calibrate_;
    measured_.assign(tail(), lambda_);
  }

 private:
  struct Mean {
    double sum = 0;
    double weight = 0;
    void add(double number, double times) {
      sum += times * number;
      weight += times;
    }
  };

  // As it was constructed.
  void forget() {
    lambda_ = 0;
    rule_ = by_rule_;
    voting_ = false;
    measured_steps_ = 0;
    measured_.clear();
  }
  // What was voted on stays: the next step does not vote.
  void continue_from(const Threshold& other) {
    measured_ = other.measured_;
    lambda_ = other.lambda_;
    rule_ = other.rule_;
    measured_steps_ = other.measured_steps_;
  }

  bool calibrating() const noexcept { return measured_steps_ < calibrate_; }
  // The number of steps at the end of the calibration whose k-th magnitudes count.
  std::uint64_t tail() const noexcept { return std::max<std::uint64_t>(1, calibrate_ / 10); }

  void begin(float scale, SparseVector& /*out*/) override {
    lambda_of_step_ = lambda_;
    if (rule_) {  // 1/(2 sqrt k) is for gradients; where the memory holds lr*gradient, it is multiplied by the first lr
      lambda_of_step_ = std::abs(scale) * (0.5F / std::sqrt(static_cast<float>(k_)));
    }
  }

  std::optional<std::size_t> sift_unit(std::size_t u, const Unit& unit, const kernels::ScaledGradient* gradient,
                                       ErrorMemory& memory, Candidates& chosen) override {
    if (calibrating()) return top_.take(u, unit, gradient, memory, k_, magnitude_score(), chosen);
    const std::uint32_t threshold =
        std::clamp(kernels::key_of(lambda_of_step_), kernels::kLowestKey, kernels::kInfinityKey);
    return memory.take_all(unit, gradient, threshold, chosen);
  }

  void end() override {
    lambda_before_ = std::exchange(lambda_, lambda_of_step_);
    voting_before_ = std::exchange(voting_, false);
    rule_before_ = rule_;
    if (lambda_ > 0) rule_ = false;  // a learning rate of 0, with which warm-ups begin, sets no lambda
    measured_before_ = measured_steps_;
    if (!calibrating()) return;
    if (measured_steps_ + tail() >= calibrate_) measured_.push_back(kernels::magnitude_of(top_.kth()));
    ++measured_steps_;
    if (calibrating()) return;
    std::vector<float> sorted = measured_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    lambda_ = *middle;
    voting_ = true;
  }

  void rewind() override {
    lambda_ = lambda_before_;
    rule_ = rule_before_;
    voting_ = voting_before_;
    if (measured_steps_ == measured_before_) return;
    measured_steps_ = measured_before_;
    if (measured_steps_ + tail() >= calibrate_) measured_.pop_back();
  }

  void serialize_more(State& state) override {
    state.value("lambda", lambda_);
    state.flag("rule_pending", rule_);
    state.flag("voting", voting_);
    state.value("measured_steps", measured_steps_);
    state.array("measured", measured_);
    const auto is_wrong = [](float number) { return !std::isfinite(number) || number < 0; };
    const std::uint64_t first = calibrate_ - std::min(calibrate_, tail());  // the first step that is recorded
    if (is_wrong(lambda_) || std::any_of(measured_.begin(), measured_.end(), is_wrong) ||
        measured_steps_ > calibrate_ || measured_.size() != measured_steps_ - std::min(measured_steps_, first)) {
      throw UsageError("[state] holds a threshold that cannot have been measured");
    }
  }

  // With lambda= nothing is known before the first step, so k_ is 0.
  double expected_in(const Unit& /*unit*/) const override { return static_cast<double>(k_); }

  TopSelector top_;
  float lambda_ = 0;
  float lambda_of_step_ = 0;  // becomes lambda_ at the end of a step that does not fail
  float lambda_before_ = 0;   // this and the other *_before_: for rewind()
  double ratio_ = 0;          // 0: lambda is given
  std::size_t k_ = 0;
  bool by_rule_ = false;
  bool rule_ = false;  // lambda is still to be set by the rule
  bool rule_before_ = false;
  bool voting_ = false;  // lambda was measured in the last step
  bool voting_before_ = false;
  std::uint64_t calibrate_ = 0;  // steps of Top-k before lambda is known
  std::uint64_t measured_steps_ = 0;
  std::uint64_t measured_before_ = 0;
  std::vector<float> measured_;  // the k-th magnitudes that count
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_threshold(Spec& spec, const SifterContext& context) {
  return std::make_unique<Threshold>(spec, context);
}

}  // namespace sparsewire
