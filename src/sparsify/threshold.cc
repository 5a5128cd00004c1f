// Keeps every entry with |a| >= lambda, one constant lambda for all tensors and the whole training.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021: under a budget for the whole
// training nothing has a smaller total error. lambda is given, follows a rule, or is measured. To measure it, Top-k
// runs for about 1/ratio steps (error feedback raises the k-th magnitude for that long); lambda is the median of the
// k-th magnitudes over the last tenth of these steps.
//
// lambda is in units of the gradient. Where the memory holds lr*gradient, the threshold of a step is lambda*lr: so the
// error that stays behind is bounded by the present learning rate, as it is where the memory holds the gradient. For
// the same reason a measured magnitude is divided by the learning rate of its step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/budget.h"
#include "sparsify/registry.h"
#include "sparsify/unit_sparsifier.h"

namespace sparsewire {
namespace {

constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 32;  // a calibration may take
constexpr std::string_view kLambdaField = "lambda_in_gradient_units";
constexpr double kLargest = std::numeric_limits<float>::max();

class Threshold final : public UnitSparsifier {
 public:
  Threshold(Spec& spec, const SifterContext& context)
      : UnitSparsifier(spec, context, Scope::model) {  // a constant threshold chooses the same entries by layer
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
    if (lambda) lambda_ = static_cast<double>(static_cast<float>(*lambda));
    if (lambda || !ratio) return;
    ratio_ = *ratio;
    k_ = std::max<std::size_t>(1, count_of(*ratio, sparse_size()));
    by_rule_ = by_rule;
    if (by_rule) {
      lambda_ = lambda_by_rule();
    } else {
      calibrate_ = calibrate.value_or(static_cast<std::uint64_t>(std::min(std::ceil(1 / *ratio), double{kMostSteps})));
    }
  }

  SparsifierTraits traits() const override { return {.entries_vary = true, .remembers = calibrate_ > 0}; }
  bool is_voting() const noexcept override { return voting_; }
  // A k-th magnitude of 0 says that there were fewer than k entries to measure: any threshold suits this rank.
  std::optional<float> vote() const noexcept override {
    const bool has_measured = voting_ && sparse_size() > 0 && lambda_ > 0;
    return has_measured ? std::optional(static_cast<float>(lambda_)) : std::nullopt;
  }
  void set_vote(float agreed) override { lambda_ = static_cast<double>(agreed); }

  std::optional<double> threshold() const noexcept override {
    return calibrating() || holds_old_units_ ? std::nullopt : std::optional(lambda_);
  }

  void learn_from(std::span<const Predecessor<FusedSparsifier>> others) override {
    if (ratio_ == 0) return;  // lambda is given
    forget();
    Mean mean;
    bool old_units = false;
    bool gradient_units = false;
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
      (from->holds_old_units_ ? old_units : gradient_units) = true;
    }
    if (!(mean.weight > 0) || (old_units && gradient_units)) return;
    const auto lambda = static_cast<float>(mean.sum / mean.weight);
    lambda_ = static_cast<double>(lambda);
    holds_old_units_ = old_units;
    // As after a calibration in which each step gave this lambda.
    measured_steps_ = calibrate_;
    measured_.assign(tail(), lambda);
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
    lambda_ = by_rule_ ? lambda_by_rule() : 0;
    holds_old_units_ = false;
    voting_ = false;
    measured_steps_ = 0;
    measured_.clear();
  }
  // What was voted on stays: the next step does not vote.
  void continue_from(const Threshold& other) {
    measured_ = other.measured_;
    lambda_ = other.lambda_;
    holds_old_units_ = other.holds_old_units_;
    measured_steps_ = other.measured_steps_;
  }

  bool calibrating() const noexcept { return measured_steps_ < calibrate_; }
  // The number of steps at the end of the calibration whose k-th magnitudes count.
  std::uint64_t tail() const noexcept { return std::max<std::uint64_t>(1, calibrate_ / 10); }

  // 1/(2 sqrt k), with the k of the whole model, so that all regions have the same. Not 0 for an empty model.
  double lambda_by_rule() const {
    const auto k = static_cast<float>(std::max<std::size_t>(1, count_of(ratio_, model_size())));
    return static_cast<double>(0.5F / std::sqrt(k));
  }

  void begin(float unit_of_memory, SparseVector& /*out*/) override {
    unit_ = std::abs(static_cast<double>(unit_of_memory));
    const double in_memory = holds_old_units_ ? lambda_ : lambda_ * unit_;
    lambda_of_step_ = in_memory > kLargest ? std::numeric_limits<float>::infinity() : static_cast<float>(in_memory);
    // With a learning rate of 0 nothing is added, so nothing can have grown to the threshold.
    if (unit_ == 0 && lambda_ > 0) lambda_of_step_ = std::numeric_limits<float>::infinity();
    make_room();
  }
  // For what end() does.
  void make_room() {
    if (holds_old_units_) old_measured_.reserve(measured_.size());
    if (!calibrating()) return;
    const std::size_t size = measured_.size() + 1;
    if (measured_.capacity() < size) measured_.reserve(2 * size);
    if (measured_steps_ + 1 == calibrate_) sorted_.reserve(size);
  }

  Rule rule(const Unit& /*unit*/) const override {
    if (calibrating()) return {Rule::Kind::best, k_};
    return {Rule::Kind::at_least, key_of_step()};
  }

  std::uint32_t key_of_step() const noexcept {
    return std::clamp(kernels::key_of(lambda_of_step_), kernels::kLowestKey, kernels::kInfinityKey);
  }

  void end(std::uint32_t kth) noexcept override {
    lambda_before_ = lambda_;
    voting_before_ = std::exchange(voting_, false);
    converted_ = holds_old_units_ && unit_ > 0;
    if (converted_) convert();
    measured_before_ = measured_steps_;
    if (!calibrating() || unit_ == 0) return;  // a learning rate of 0 measures nothing, so the step does not count
    if (measured_steps_ + tail() >= calibrate_) measured_.push_back(measured_now(kth));
    ++measured_steps_;
    if (calibrating()) return;
    sorted_ = measured_;
    const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>((sorted_.size() - 1) / 2);
    std::nth_element(sorted_.begin(), middle, sorted_.end());
    lambda_ = static_cast<double>(*middle);
    voting_ = true;
  }

  // The k-th magnitude of this step, in units of the gradient.
  float measured_now(std::uint32_t kth) const {
    const double measured = static_cast<double>(kernels::magnitude_of(kth)) / unit_;
    return static_cast<float>(std::min(measured, kLargest));
  }

  // To units of the gradient, by the learning rate of this step.
  void convert() {
    old_measured_ = measured_;
    lambda_ = std::min(lambda_ / unit_, kLargest);
    for (float& one : measured_) one = static_cast<float>(std::min(static_cast<double>(one) / unit_, kLargest));
    holds_old_units_ = false;
  }

  void rewind() override {
    lambda_ = lambda_before_;
    voting_ = voting_before_;
    rewind_measured();
    if (!converted_) return;
    measured_.swap(old_measured_);
    holds_old_units_ = true;
    converted_ = false;
  }
  void rewind_measured() {
    if (measured_steps_ == measured_before_) return;
    measured_steps_ = measured_before_;
    if (measured_steps_ + tail() >= calibrate_) measured_.pop_back();
  }

  // Up to 0.3 there was `lambda` alone, in units of the memory. It becomes one of the gradient in the next step, whose
  // learning rate is known.
  void serialize_more(State& state) override {
    auto in_memory = static_cast<float>(lambda_);
    bool rule_pending = by_rule_;  // of older versions, which set lambda in their first step
    state.value("lambda", in_memory);
    state.flag("rule_pending", rule_pending);
    if (state.saving()) {
      if (!holds_old_units_) state.value(kLambdaField, lambda_);  // older versions must not ignore it
    } else {
      holds_old_units_ = !state.optional_value(kLambdaField, lambda_);
      if (holds_old_units_) lambda_ = static_cast<double>(in_memory);
      if (by_rule_) lambda_ = lambda_by_rule();
      holds_old_units_ = holds_old_units_ && !by_rule_;
      converted_ = false;
    }
    state.flag("voting", voting_);
    state.value("measured_steps", measured_steps_);
    state.array("measured", measured_);
    const auto is_wrong = [](auto number) { return !std::isfinite(number) || number < 0; };
    const std::uint64_t first = calibrate_ - std::min(calibrate_, tail());  // the first step that is recorded
    if (is_wrong(in_memory) || is_wrong(lambda_) || lambda_ > kLargest ||
        std::any_of(measured_.begin(), measured_.end(), is_wrong) || measured_steps_ > calibrate_ ||
        measured_.size() != measured_steps_ - std::min(measured_steps_, first)) {
      throw UsageError("[state] holds a threshold that cannot have been measured");
    }
  }

  // With lambda= nothing is known before the first step, so k_ is 0.
  double expected_in(const Unit& /*unit*/) const override { return static_cast<double>(k_); }

  double lambda_ = 0;             // in units of the gradient
  bool holds_old_units_ = false;  // lambda_ and measured_ are from an old state, and in units of the memory
  bool converted_ = false;        // they were, until the last step
  std::vector<float> old_measured_;
  double unit_ = 1;           // of the memory in this step, in units of the gradient
  float lambda_of_step_ = 0;  // in units of the memory
  double lambda_before_ = 0;  // this and the other *_before_: for rewind()
  double ratio_ = 0;          // 0: lambda is given
  std::size_t k_ = 0;
  bool by_rule_ = false;
  bool voting_ = false;  // lambda was measured in the last step
  bool voting_before_ = false;
  std::uint64_t calibrate_ = 0;  // steps of Top-k before lambda is known
  std::uint64_t measured_steps_ = 0;
  std::uint64_t measured_before_ = 0;
  std::vector<float> measured_;  // the k-th magnitudes that count
  std::vector<float> sorted_;
};

}  // namespace

std::unique_ptr<FusedSparsifier> make_threshold(Spec& spec, const SifterContext& context) {
  return std::make_unique<Threshold>(spec, context);
}

}  // namespace sparsewire
