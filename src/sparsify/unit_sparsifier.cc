#include "sparsify/unit_sparsifier.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"

namespace sparsewire {

UnitSparsifier::UnitSparsifier(Spec& spec, const SifterContext& context, Scope scope, std::uint64_t chunk)
    : name_(spec.name()), context_(context), step_(context.first_step), runner_(0, nullptr) {
  if (context_.weight == 0) context_.weight = 1.0 / context_.ranks;
  Cut cut{.scope = scope, .chunk = chunk};
  cut.dense_below = spec.integer("dense_below", 0, ~std::uint64_t{0}).value_or(0);
  units_ = make_units(context_.layout, cut);
  for (const Unit& unit : units_) sparse_size_ += unit.dense ? 0 : unit.size;
  runner_ = UnitRunner(units_.size(), context_.pool);
}

DrawsFrom UnitSparsifier::draws() const {
  return {context_.seed, static_cast<std::uint32_t>(context_.role), static_cast<std::uint32_t>(context_.rank), step_};
}

// COST: O(1) if rule() depends on what it depended on before.
void UnitSparsifier::make_rules() {
  rules_.scores = scores();
  rules_.draws = draws();
  const std::optional<double> depends_on = rule_depends_on();
  if (depends_on && depends_on == rules_depended_on_) return;
  rules_depended_on_.reset();  // unless all are made
  choices_are_made_ = false;
  rules_.of_units.resize(units_.size());
  has_draws_ = false;
  narrows_ = rules_.scores.by != nullptr;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    Rule& made = rules_.of_units[u];
    made = units_[u].dense ? Rule{.n = kernels::kLowestKey} : rule(units_[u]);
    has_draws_ = has_draws_ || made.kind == Rule::Kind::drawn;
    narrows_ = narrows_ || made.then_draw > 0;
  }
  rules_depended_on_ = depends_on;
}

double UnitSparsifier::sift(const kernels::ScaledGradient* gradient, float unit_of_memory, ErrorMemory& memory,
                            SparseVector& out) {
  out.dim = context_.layout.dim();
  out.draw.units.clear();
  begin(unit_of_memory, out);
  make_rules();
  if (memory.is_on_device()) {
    out.indices.clear();
    out.values.clear();
    return sift_on_device(gradient, memory, out);
  }
  double accumulated_norm2 = 0;
  std::optional<std::size_t> bad;
  try {
    bad = runner_.sift(units_, rules_, gradient, memory, out, accumulated_norm2);
  } catch (...) {
    out.clear(out.dim);
    throw;
  }
  if (bad) {
    out.clear(out.dim);
    throw_bad_gradient(name_, context_, step_, *gradient, memory, *bad);
  }
  end(units_.empty() ? 0 : runner_.kth(0));
  ++step_;
  return accumulated_norm2;
}

void UnitSparsifier::undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) {
  memory.put_back(sent);
  memory.restore(gradient);  // the units are all entries
  --step_;
  rewind();
}

double UnitSparsifier::expected_entries() const {
  double sum = 0;
  for (const Unit& unit : units_) sum += unit.dense ? static_cast<double>(unit.size) : expected_in(unit);
  return sum;
}

void UnitSparsifier::serialize(State& state) {
  state.value("step", step_);
  serialize_more(state);
}

}  // namespace sparsewire
