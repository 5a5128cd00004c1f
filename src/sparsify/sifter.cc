#include "sparsewire/sifter.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/pages.h"
#include "core/spec.h"
#include "core/standard_float_mode.h"
#include "core/state.h"
#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/sift_pass.h"

namespace sparsewire {

struct Sifter::Parts {
  SifterContext context;
  std::string sparsifier_spec;
  std::string feedback_spec;
  std::string name;  // of the sparsifier
  Feedback feedback;
  std::unique_ptr<Sparsifier> sparsifier;
  LongVector memory;
  SiftStats stats;
  SiftStats stats_before;  // for undo
  bool can_undo = false;   // a step was taken, and nothing came after it

  // Feedback `none` only. Its memory is zero between steps, unless numbers were put there from outside.
  bool may_hold_numbers = false;     // load() or a caller of memory() may have; once set it stays
  std::vector<float> memory_before;  // what was there before the last step, for undo; empty: zeros

  // Momentum (DGC) only.
  LongVector velocity;
  std::vector<float> cleared;  // velocities that were cleared in the last step, for undo
  Unit whole;                  // the model as one unit
  SiftPass pass{nullptr};
  Candidates nothing;

  Gradient accumulate_velocity(Gradient gradient);
  SiftNorms sift(Gradient gradient, SparseVector& sent, float lr);
  SiftNorms sift_velocity(Gradient gradient, SparseVector& sent);
  SiftNorms sift_without_feedback(Gradient gradient, SparseVector& sent);
  void clear_memory();
  Gradient scaled(Gradient gradient, float lr) const;
  void check(const SparseVector& entries, const char* what) const;
  float clip_factor(const Gradient& gradient);
  Layout serialize_head(State& state);
  void serialize_body(State& state, LongVector& all_memory, LongVector& all_velocity);
  void read_body(State& state, const Layout& saved, std::span<const std::byte> before, LongVector& all_memory,
                 LongVector& all_velocity);
};

namespace {

using Names = std::unordered_map<std::string_view, const TensorRange*>;

Names names_of(const Layout& layout) {
  Names names;
  for (const TensorRange& tensor : layout.tensors()) names.emplace(tensor.name, &tensor);
  return names;
}

// The numbers in the order of the tensors of `to`; `from` says where each tensor's numbers are now.
LongVector rearrange(const LongVector& numbers, const Names& from, const Layout& to) {
  LongVector result(to.dim());
  for (const TensorRange& tensor : to.tensors()) {
    std::copy_n(numbers.data() + from.at(tensor.name)->begin, tensor.size, result.data() + tensor.begin);
  }
  return result;
}

// Throws UsageError unless the saved layout holds every wanted tensor, in the same size.
void check_tensors(const Names& saved, const Layout& wanted) {
  for (const TensorRange& tensor : wanted.tensors()) {
    const auto found = saved.find(tensor.name);
    if (found == saved.end() || found->second->size != tensor.size) {
      throw UsageError(fmt::format("[state] tensor '{}' of {} entries {}", tensor.name, tensor.size,
                                   found == saved.end()
                                       ? "is not in the state"
                                       : fmt::format("has {} entries in the state", found->second->size)));
    }
  }
}

}  // namespace

Sifter::Sifter(std::string_view sparsifier, std::string_view feedback, SifterContext context)
    : parts_(std::make_unique<Parts>()) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.feedback = parse_feedback(feedback);
  p.sparsifier_spec = sparsifier;
  p.feedback_spec = feedback;
  p.name = Spec(sparsifier).name();
  p.sparsifier = make_sparsifier(sparsifier, context);
  p.memory.resize(context.layout.dim());
  p.stats.step = context.first_step;
  if (p.feedback.kind == Feedback::Kind::momentum) {
    p.velocity.resize(context.layout.dim());
    const auto units = make_units(context.layout, {});
    if (!units.empty()) p.whole = units.front();
    p.pass = SiftPass(context.pool);
  }
  p.context = std::move(context);
}

Sifter::~Sifter() = default;
Sifter::Sifter(Sifter&&) noexcept = default;
Sifter& Sifter::operator=(Sifter&&) noexcept = default;

// DGC's local clipping: the norm of this worker's gradient is cut to clip/sqrt(ranks), so that the sum over the workers
// keeps to about clip.
float Sifter::Parts::clip_factor(const Gradient& gradient) {
  if (feedback.clip == 0) return 1.0F;
  double norm2 = 0;
  for (const Block& block : whole.blocks) {
    std::array<double, kernels::kLanes> lanes{};
    kernels::sum_squares(gradient, block.begin, block.size, lanes.data());
    norm2 += kernels::sum_lanes(lanes.data());
  }
  const double limit = feedback.clip / std::sqrt(static_cast<double>(context.ranks));
  const double factor = limit / std::sqrt(norm2);
  return factor < 1 ? static_cast<float>(factor) : 1.0F;  // 1 also if the norm is NaN: sift then refuses the gradient
}

// velocity <- m*velocity + gradient. Returns the velocity: it is sifted in place of the gradient.
Gradient Sifter::Parts::accumulate_velocity(Gradient gradient) {
  gradient.decay = feedback.momentum;
  const auto bad = pass.take_all(whole, gradient, velocity.data(), kernels::kInfinityKey, nothing);
  if (bad) throw_bad_gradient(name, context, stats.step, gradient, velocity, *bad);
  return velocity;
}

// A step of DGC: the velocity is sifted, and cleared where an entry is sent.
SiftNorms Sifter::Parts::sift_velocity(Gradient gradient, SparseVector& sent) {
  gradient.scale = clip_factor(gradient);
  const Gradient total = accumulate_velocity(gradient);
  SiftNorms sifted;
  bool taken = false;
  try {
    sifted = sparsifier->sift(total, memory, sent);
    taken = true;
    cleared.reserve(sent.size());
  } catch (...) {
    if (taken) sparsifier->undo(total, memory, sent);
    gradient.decay = feedback.momentum;
    pass.subtract(whole, gradient, velocity.data());
    throw;
  }
  cleared.clear();
  for (std::size_t i = 0; i < sent.size(); ++i) cleared.push_back(std::exchange(velocity[sent.index(i)], 0.0F));
  return sifted;
}

// What is not sent is dropped. So numbers that were in the memory before are copied first: undo() could not find them
// otherwise.
SiftNorms Sifter::Parts::sift_without_feedback(Gradient gradient, SparseVector& sent) {
  memory_before.clear();
  const auto is_number = [](float number) { return number != 0; };
  if (may_hold_numbers && std::any_of(memory.begin(), memory.end(), is_number)) {
    memory_before.assign(memory.begin(), memory.end());
  }
  const SiftNorms sifted = sparsifier->sift(gradient, memory, sent);
  clear_memory();
  return sifted;
}

void Sifter::Parts::clear_memory() { std::fill(memory.begin(), memory.end(), 0.0F); }

void Sifter::sift(Gradient gradient, SparseVector& sent, float lr) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.can_undo = false;
  try {
    if (gradient.size != p.memory.size() || (gradient.data == nullptr && gradient.size != 0)) {
      throw UsageError(fmt::format("[{}] a gradient of {} entries does not fit a layout of {}", p.name,
                                   gradient.data == nullptr ? 0 : gradient.size, p.memory.size()));
    }
    p.stats_before = p.stats;
    const SiftNorms sifted = p.sift(gradient, sent, lr);
    p.stats.step += 1;
    p.stats.entries = sent.size();
    p.stats.sent_norm2 = sifted.sent_norm2;
    p.stats.memory_norm2 = sifted.accumulated_norm2 - sifted.sent_norm2;
    p.stats.total_error += p.stats.memory_norm2;
  } catch (...) {
    sent.clear(p.memory.size());
    throw;
  }
  p.can_undo = true;
}

SiftNorms Sifter::Parts::sift(Gradient gradient, SparseVector& sent, float lr) {
  if (feedback.kind == Feedback::Kind::momentum) return sift_velocity(gradient, sent);
  const Gradient in_units_of_memory = scaled(gradient, lr);
  if (feedback.kind == Feedback::Kind::none) return sift_without_feedback(in_units_of_memory, sent);
  return sparsifier->sift(in_units_of_memory, memory, sent);
}

// The gradient with the factors that the feedback gives it.
Gradient Sifter::Parts::scaled(Gradient gradient, float lr) const {
  if (feedback.scale_by_lr && !std::isfinite(lr))
    throw UsageError(fmt::format("[ef] lr={} is not a finite number", lr));
  gradient.decay = feedback.decay;
  gradient.scale = feedback.scale_by_lr ? lr : 1.0F;
  return gradient;
}

void Sifter::undo(Gradient gradient, const SparseVector& sent, float lr) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  if (!p.can_undo || sent.size() != p.stats.entries) {
    throw UsageError(fmt::format("[{}] undo: the last call was not a sift that sent {} entries", p.name, sent.size()));
  }
  p.check(sent, "undo");
  p.can_undo = false;
  if (p.feedback.kind == Feedback::Kind::momentum) {
    for (std::size_t i = 0; i < sent.size(); ++i) p.velocity[sent.index(i)] = p.cleared[i];
    p.sparsifier->undo(p.velocity, p.memory, sent);
    gradient.scale = p.clip_factor(gradient);
    gradient.decay = p.feedback.momentum;
    p.pass.subtract(p.whole, gradient, p.velocity.data());
  } else {
    p.sparsifier->undo(p.scaled(gradient, lr), p.memory, sent);
    if (p.feedback.kind == Feedback::Kind::none) {
      p.clear_memory();
      std::copy(p.memory_before.begin(), p.memory_before.end(), p.memory.begin());
    }
  }
  p.stats = p.stats_before;
}

void Sifter::flush(SparseVector& sent) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  if (!p.can_undo || sent.size() != p.stats.entries) {
    throw UsageError(fmt::format("[{}] flush: the last call was not a sift that sent {} entries", p.name, sent.size()));
  }
  p.check(sent, "flush");
  if (sent.is_full()) return;
  std::vector<float> all(p.memory.begin(), p.memory.end());
  for (std::size_t i = 0; i < sent.size(); ++i) all[sent.indices[i]] = sent.values[i];
  if (p.feedback.kind == Feedback::Kind::momentum) {  // a velocity is cleared where its entry is sent: everywhere
    std::vector<float> cleared(p.velocity.begin(), p.velocity.end());
    for (std::size_t i = 0; i < sent.size(); ++i) cleared[sent.indices[i]] = p.cleared[i];
    p.cleared = std::move(cleared);
    std::fill(p.velocity.begin(), p.velocity.end(), 0.0F);
  }
  sent.clear(p.memory.size());
  sent.values = std::move(all);
  p.clear_memory();
  p.stats.entries = sent.size();
  if (p.feedback.kind == Feedback::Kind::none) return;  // the rest was dropped already
  p.stats.total_error -= p.stats.memory_norm2;
  p.stats.sent_norm2 += p.stats.memory_norm2;
  p.stats.memory_norm2 = 0;
}

void Sifter::Parts::check(const SparseVector& entries, const char* what) const {
  if (entries.dim == memory.size() && entries.is_valid()) return;
  throw UsageError(
      fmt::format("[{}] {}: this is not a vector of dimension {} with ascending indices", name, what, memory.size()));
}

void Sifter::keep_rounding_loss(const SparseVector& sent, std::span<const float> received) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check(sent, "keep_rounding_loss");
  p.can_undo = false;
  if (sent.size() != received.size()) {
    throw UsageError(fmt::format("[{}] keep_rounding_loss: {} values were received, but {} were sent", p.name,
                                 received.size(), sent.size()));
  }
  if (p.feedback.kind == Feedback::Kind::none) return;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float* const values = sent.values.data();
  bool fine = true;
  for (std::size_t i = 0; i < sent.size(); ++i) fine &= std::abs(values[i] - received[i]) <= kLargest;  // no NaN either
  for (std::size_t i = 0; !fine && i < sent.size(); ++i) {
    if (std::isfinite(values[i] - received[i])) continue;
    throw UsageError(
        fmt::format("[{}] entry {} was sent as {} and received as {}", p.name, sent.index(i), values[i], received[i]));
  }
  float* const memory = p.memory.data();
  if (sent.is_full()) {
    for (std::size_t i = 0; i < sent.size(); ++i) memory[i] += values[i] - received[i];
  } else {
    for (std::size_t i = 0; i < sent.size(); ++i) memory[sent.indices[i]] += values[i] - received[i];
  }
}

void Sifter::observe(const SparseVector& sent, std::span<const float> update_at_sent) {
  const StandardFloatMode mode;
  parts_->check(sent, "observe");
  parts_->can_undo = false;
  parts_->sparsifier->observe(sent, update_at_sent);
}

std::uint64_t Sifter::step() const noexcept { return parts_->sparsifier->step(); }
bool Sifter::is_all_in_memory() const noexcept {
  return !parts_->sparsifier->remembers() && parts_->feedback.kind != Feedback::Kind::momentum;
}
double Sifter::expected_entries() const {
  return std::min(parts_->sparsifier->expected_entries(), static_cast<double>(layout().dim()));
}
bool Sifter::is_voting() const noexcept { return parts_->sparsifier->is_voting(); }
std::optional<float> Sifter::vote() const noexcept { return parts_->sparsifier->vote(); }
void Sifter::set_vote(float agreed) { parts_->sparsifier->set_vote(agreed); }
const Layout& Sifter::layout() const noexcept { return parts_->context.layout; }
const SiftStats& Sifter::stats() const noexcept { return parts_->stats; }
std::span<float> Sifter::memory() noexcept {
  parts_->may_hold_numbers = true;
  return parts_->memory;
}
std::span<const float> Sifter::memory() const noexcept { return parts_->memory; }
std::span<float> Sifter::velocity() noexcept { return parts_->velocity; }

std::span<float> Sifter::memory(std::string_view name) {
  const TensorRange* const tensor = layout().find(name);
  if (tensor == nullptr) throw UsageError(fmt::format("[{}] the layout has no tensor '{}'", parts_->name, name));
  return memory().subspan(tensor->begin, tensor->size);
}

void Sifter::Parts::serialize_body(State& state, LongVector& all_memory, LongVector& all_velocity) {
  state.array("memory", all_memory);
  state.array("velocity", all_velocity);
  state.value("ledger_step", stats.step);
  state.value("ledger_entries", stats.entries);
  state.value("ledger_sent_norm2", stats.sent_norm2);
  state.value("ledger_memory_norm2", stats.memory_norm2);
  state.value("ledger_total_error", stats.total_error);
  sparsifier->serialize(state);
}

// The specs and the layout, which say whether a state fits this sifter. Returns the layout of the state.
Layout Sifter::Parts::serialize_head(State& state) {
  std::string saved_sparsifier = sparsifier_spec;
  std::string saved_feedback = feedback_spec;
  state.string("sparsifier", saved_sparsifier);
  state.string("feedback", saved_feedback);
  if (saved_sparsifier != sparsifier_spec || saved_feedback != feedback_spec) {
    throw UsageError(fmt::format("[state] was saved by '{}' with feedback '{}'; this is '{}' with '{}'",
                                 saved_sparsifier, saved_feedback, sparsifier_spec, feedback_spec));
  }
  return serialize_layout(state, context.layout);
}

std::vector<std::byte> Sifter::save() const {
  Parts& p = *parts_;  // serialize() both reads and writes; here it only reads
  State state;
  p.serialize_head(state);
  p.serialize_body(state, p.memory, p.velocity);
  return std::move(state).bytes();
}

// Reads what follows the head of a state that was saved with the layout `saved`. If that fails, everything is restored
// from `before`.
void Sifter::Parts::read_body(State& state, const Layout& saved, std::span<const std::byte> before,
                              LongVector& all_memory, LongVector& all_velocity) {
  try {
    serialize_body(state, all_memory, all_velocity);
    state.finish();
    if (all_memory.size() != saved.dim() ||
        all_velocity.size() != (feedback.kind == Feedback::Kind::momentum ? saved.dim() : 0)) {
      throw UsageError("[state] the memory has another size than its tensors");
    }
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (!std::all_of(all_memory.begin(), all_memory.end(), is_finite) ||
        !std::all_of(all_velocity.begin(), all_velocity.end(), is_finite)) {
      throw UsageError("[state] the memory holds a number that is not finite");
    }
  } catch (...) {
    State back(before);
    serialize_head(back);
    serialize_body(back, all_memory, all_velocity);
    throw;
  }
  can_undo = false;
}

void Sifter::inherit(std::span<const std::byte> bytes) {
  Parts& p = *parts_;
  State state(bytes);
  const Layout saved = p.serialize_head(state);
  state.remap_index = [](std::uint32_t) { return std::nullopt; };
  LongVector memory;
  LongVector velocity;
  p.read_body(state, saved, save(), memory, velocity);
}

void Sifter::load(std::span<const std::byte> bytes) {
  Parts& p = *parts_;
  State state(bytes);
  const Layout saved = p.serialize_head(state);
  const Layout& layout = p.context.layout;
  const Names saved_names = names_of(saved);
  const Names names = names_of(layout);
  check_tensors(saved_names, layout);
  const bool moved = saved != layout;
  if (moved) {
    state.remap_index = [&](std::uint32_t index) -> std::optional<std::uint32_t> {
      if (index >= saved.dim()) return std::nullopt;
      const TensorRange& tensor = saved.at(index);
      const auto now = names.find(tensor.name);
      if (now == names.end()) return std::nullopt;
      return static_cast<std::uint32_t>(now->second->begin + (index - tensor.begin));
    };
  }
  LongVector memory;
  LongVector velocity;
  p.read_body(state, saved, save(), memory, velocity);
  p.may_hold_numbers = true;
  p.memory = moved ? rearrange(memory, saved_names, layout) : std::move(memory);
  p.velocity = moved && !velocity.empty() ? rearrange(velocity, saved_names, layout) : std::move(velocity);
}

}  // namespace sparsewire
