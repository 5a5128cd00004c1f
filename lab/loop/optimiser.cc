// SGD, Adam (weight decay as part of the gradient) and AdamW (Loshchilov, Hutter, 2019: weight decay separate from it),
// as in PyTorch, with dampening 0 and without AMSGrad.
#include "loop/optimiser.h"

#include <fmt/core.h>

#include <cassert>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/support/portable_math.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

constexpr Range kFraction{.min = 0, .max = 1, .below_max = true};  // [0, 1)
constexpr Range kDecay{.min = 0};

// A restored array may have any length, so it is checked before it is used.
void serialize_array(State& state, std::string_view name, std::vector<float>& values) {
  std::vector<float> found = values;
  state.array(name, found);
  if (found.size() != values.size()) {
    throw UsageError(
        fmt::format("[state] '{}' of the optimiser has {} entries, not {}", name, found.size(), values.size()));
  }
  values = std::move(found);
}

// Saves `kind`, or checks that the saved optimiser was of that kind.
void serialize_kind(State& state, const std::string& kind) {
  std::string found = kind;
  state.string("optimiser", found);
  if (found != kind) throw UsageError(fmt::format("[state] was saved by the optimiser '{}', not '{}'", found, kind));
}

struct SgdRule {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

class Sgd final : public Optimiser {
 public:
  Sgd(const SgdRule& rule, std::uint64_t dim) : rule_(rule), velocity_(rule.momentum > 0 ? dim : 0) {}

  OptimiserStep begin_step(const Applied& how) override {
    if (is_plain()) {
      return {.kind = OptimiserStep::Kind::plain,
              .rate = how.holds_lr ? 1 : how.lr,
              .weight_decay = how.lr * rule_.weight_decay};
    }
    if (how.holds_lr) {
      throw UsageError("[sgd] an update that is lr*gradient (feedback scale=lr) needs momentum=0");
    }
    return {.kind = OptimiserStep::Kind::momentum,
            .rate = how.lr,
            .weight_decay = rule_.weight_decay,
            .momentum = rule_.momentum,
            .nesterov = rule_.nesterov};
  }

  std::vector<std::span<float>> arrays() override {
    if (is_plain()) return {};
    return {velocity_};
  }

  void serialize(State& state) override {
    serialize_kind(state, "sgd");
    serialize_array(state, "velocity", velocity_);
  }

  bool is_plain() const noexcept override { return rule_.momentum == 0; }
  bool has_momentum() const noexcept override { return !is_plain(); }

 private:
  SgdRule rule_;
  std::vector<float> velocity_;  // empty without momentum
};

struct AdamRule {
  std::string kind;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
};

class Adam final : public Optimiser {
 public:
  Adam(AdamRule rule, std::uint64_t dim) : rule_(std::move(rule)), mean_(dim), square_(dim) {}

  OptimiserStep begin_step(const Applied& how) override {
    if (how.holds_lr) {
      throw UsageError(
          fmt::format("[{}] an update that is lr*gradient (feedback scale=lr) needs plain sgd", rule_.kind));
    }
    ++steps_;
    // Corrects the averages, which started at 0.
    const double unbias1 = 1 - portable_pow(rule_.beta1, static_cast<double>(steps_));
    const double unbias2 = std::sqrt(1 - portable_pow(rule_.beta2, static_cast<double>(steps_)));
    return {.kind = OptimiserStep::Kind::adam,
            .rate = how.lr / unbias1,
            .weight_decay = rule_.decoupled ? 0 : rule_.weight_decay,
            .beta1 = rule_.beta1,
            .beta2 = rule_.beta2,
            .unbias2 = unbias2,
            .epsilon = rule_.epsilon,
            .shrink = rule_.decoupled ? 1 - how.lr * rule_.weight_decay : 1};
  }

  std::vector<std::span<float>> arrays() override { return {mean_, square_}; }

  void serialize(State& state) override {
    serialize_kind(state, rule_.kind);
    state.value("steps", steps_);
    serialize_array(state, "mean", mean_);
    serialize_array(state, "square", square_);
  }

  bool is_plain() const noexcept override { return false; }
  bool has_momentum() const noexcept override { return true; }

 private:
  AdamRule rule_;
  std::uint64_t steps_ = 0;
  std::vector<float> mean_;    // of the gradient
  std::vector<float> square_;  // of its square
};

std::unique_ptr<Optimiser> make_sgd(Spec& spec, std::uint64_t dim) {
  SgdRule rule;
  rule.momentum = spec.number("momentum", kFraction).value_or(0);
  rule.nesterov = spec.flag("nesterov", false);
  rule.weight_decay = spec.number("weight_decay", kDecay).value_or(0);
  if (rule.nesterov && rule.momentum == 0) spec.fail_on_finish("nesterov=true needs a momentum in (0, 1)");
  return std::make_unique<Sgd>(rule, dim);
}

std::unique_ptr<Optimiser> make_adam_kind(Spec& spec, std::uint64_t dim, AdamRule rule) {
  rule.kind = spec.name();
  rule.beta1 = spec.number("beta1", kFraction).value_or(rule.beta1);
  rule.beta2 = spec.number("beta2", kFraction).value_or(rule.beta2);
  rule.epsilon = spec.number("epsilon", {.min = 0, .above_min = true}).value_or(rule.epsilon);
  rule.weight_decay = spec.number("weight_decay", kDecay).value_or(rule.weight_decay);
  return std::make_unique<Adam>(std::move(rule), dim);
}

std::unique_ptr<Optimiser> make_adam(Spec& spec, std::uint64_t dim) {
  return make_adam_kind(spec, dim, {.kind = {}, .weight_decay = 0, .decoupled = false});
}

std::unique_ptr<Optimiser> make_adamw(Spec& spec, std::uint64_t dim) {
  return make_adam_kind(spec, dim, {.kind = {}, .weight_decay = 0.01, .decoupled = true});
}

constexpr OptimiserInfo kInfos[] = {
#define OPTIMISER(name, summary, example) {#name, summary, example},
#include "loop/optimisers.def"
#undef OPTIMISER
};

using Make = std::unique_ptr<Optimiser> (*)(Spec& spec, std::uint64_t dim);

constexpr Make kMakers[] = {
#define OPTIMISER(name, summary, example) make_##name,
#include "loop/optimisers.def"
#undef OPTIMISER
};

}  // namespace

std::span<const OptimiserInfo> optimisers() noexcept { return kInfos; }

void Optimiser::apply_step(const OptimiserStep& step, std::span<const float> update, std::span<float> weights) {
  assert(update.size() == weights.size());
  const std::vector<std::span<float>> kept = arrays();
  float* const first = kept.empty() ? nullptr : kept[0].data();
  float* const second = kept.size() < 2 ? nullptr : kept[1].data();
  with_kind(step.kind, [&]<OptimiserStep::Kind kKind>() {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      train::apply_step<kKind>(step, update[i], weights[i], first == nullptr ? nullptr : first + i,
                               second == nullptr ? nullptr : second + i);
    }
  });
}

std::vector<std::byte> Optimiser::save() {
  State state;
  serialize(state);
  return std::move(state).bytes();
}

void Optimiser::load(std::span<const std::byte> bytes) {
  State state(bytes);
  serialize(state);
  state.finish();
}

void apply_sparse(const OptimiserStep& step, const SparseVector& update, std::span<float> weights) {
  assert(step.is_sparse());
  for (std::size_t i = 0; i < update.size(); ++i) {
    apply_step<OptimiserStep::Kind::plain>(step, update.values[i], weights[update.index(i)], nullptr, nullptr);
  }
}

std::unique_ptr<Optimiser> make_optimiser(std::string_view spec_text, std::uint64_t dim) {
  Spec spec(spec_text);
  auto optimiser = kMakers[find_by_name(kInfos, spec.name(), "an optimiser")](spec, dim);
  spec.finish();
  return optimiser;
}

}  // namespace sparsewire::train
