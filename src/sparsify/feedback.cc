#include <fmt/core.h>

#include "sparsewire/errors.h"
#include "sparsewire/sifter.h"
#include "sparsewire/spec.h"

namespace sparsewire {
namespace {

// Taking a step back divides by decay or momentum. The limit keeps the quotient from overflowing.
constexpr Range kFactorRange{.min = 1e-6, .max = 1};

}  // namespace

Feedback parse_feedback(std::string_view spec_text) {
  Spec spec(spec_text);
  Feedback feedback;
  if (spec.name() == "ef") {
    feedback.kind = Feedback::Kind::ef;
    feedback.decay = static_cast<float>(spec.number("decay", kFactorRange).value_or(1));
    feedback.scale_by_lr = spec.choice("scale", {"1", "lr"}) == "lr";
  } else if (spec.name() == "none") {
    feedback.kind = Feedback::Kind::none;
  } else if (spec.name() == "momentum") {
    feedback.kind = Feedback::Kind::momentum;
    feedback.momentum = static_cast<float>(spec.number("m", {.min = kFactorRange.min, .max = 0.999999}).value_or(0.9));
    feedback.clip = static_cast<float>(spec.number("clip", {.min = 1e-30, .max = 1e30}).value_or(0));
  } else {
    throw UsageError(fmt::format("'{}' is not a feedback; there are ef, none, momentum", spec.name()));
  }
  spec.finish();
  return feedback;
}

}  // namespace sparsewire
