#include "loop/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/support/portable_math.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

struct Plan {
  double lr = 0;
  std::uint64_t steps = 0;
  std::uint64_t warmup = 0;
};

// Learning rates without their warm-up.
using Rate = std::function<double(std::uint64_t step)>;

Rate make_constant(Spec& /*spec*/, const Plan& plan) {
  return [lr = plan.lr](std::uint64_t) { return lr; };
}

Rate make_step(Spec& spec, const Plan& plan) {
  const std::uint64_t every = spec.integer("every", 1, std::numeric_limits<std::uint64_t>::max())
                                  .value_or(std::max<std::uint64_t>(1, plan.steps / 3));
  const double factor = spec.number("factor", kRatioRange).value_or(0.1);
  return [lr = plan.lr, every, factor](std::uint64_t step) {
    return lr * portable_pow(factor, static_cast<double>(step / every));
  };
}

Rate make_cosine(Spec& spec, const Plan& plan) {
  const double min = spec.number("min", {.min = 0, .max = plan.lr}).value_or(0);
  return [plan, min](std::uint64_t step) {
    if (step >= plan.steps) return min;
    if (step < plan.warmup) return plan.lr;
    const double done = static_cast<double>(step - plan.warmup) / static_cast<double>(plan.steps - plan.warmup);
    return min + (plan.lr - min) * (1 + portable_cos_of_turns(done / 2)) / 2;
  };
}

// As 4/(mu (kappa + t)) in proofs for strongly convex functions: lr is that of t = 0, and offset is kappa.
Rate make_inverse(Spec& spec, const Plan& plan) {
  const double offset = spec.number("offset", {.min = 0, .max = 1e18, .above_min = true})
                            .value_or(std::max(1.0, static_cast<double>(plan.steps) / 10));
  return [plan, offset](std::uint64_t step) {
    const auto t = static_cast<double>(step - std::min(step, plan.warmup));
    return plan.lr * offset / (offset + t);
  };
}

constexpr ScheduleInfo kInfos[] = {
#define SCHEDULE(name, summary, example) {#name, summary, example},
#include "loop/schedules.def"
#undef SCHEDULE
};

using Make = Rate (*)(Spec& spec, const Plan& plan);

constexpr Make kMakers[] = {
#define SCHEDULE(name, summary, example) make_##name,
#include "loop/schedules.def"
#undef SCHEDULE
};

Schedule warmed_up(std::uint64_t warmup, Rate rate) {
  return Schedule([warmup, rate = std::move(rate)](std::uint64_t step) {
    if (step >= warmup) return rate(step);
    return rate(step) * static_cast<double>(step + 1) / static_cast<double>(warmup);
  });
}

}  // namespace

std::span<const ScheduleInfo> schedules() noexcept { return kInfos; }

Schedule make_schedule(std::string_view spec_text, double lr, std::uint64_t steps) {
  const Range range{.min = 0, .above_min = true};
  if (!range.holds(lr) || std::isinf(lr)) throw UsageError(fmt::format("lr={} is not in {}", lr, range.text()));
  Spec spec(spec_text);
  const auto make = kMakers[find_by_name(kInfos, spec.name(), "a schedule")];
  const std::uint64_t warmup = spec.integer("warmup", 0, std::numeric_limits<std::uint64_t>::max()).value_or(0);
  Rate rate = make(spec, {.lr = lr, .steps = steps, .warmup = warmup});
  spec.finish();
  return warmed_up(warmup, std::move(rate));
}

}  // namespace sparsewire::train
