#include "sparsewire/sifter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/pages.h"
#include "core/spec.h"
#include "core/state.h"
#include "core/text.h"
#include "kernels/sweep.h"
#include "sparsewire/errors.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/harvest.h"

namespace sparsewire {

struct Sifter::Parts {
  Place place;
  std::string sparsifier_spec;
  std::string feedback_spec;
  std::string name;  // of the sparsifier
  Feedback feedback;
  std::unique_ptr<Sparsifier> sparsifier;
  LongVector memory;
  Ledger ledger;
  Ledger ledger_before;   // for undo
  bool can_undo = false;  // a step was taken, and nothing came after it

  // DGC only.
  LongVector velocity;
  std::vector<float> masked;  // velocities that were cleared in the last step, for undo
  Unit whole;
  Harvest harvest{nullptr};
  Candidates nothing;

  Gradient accumulate_velocity(Gradient gradient);
  Sifted sift(Gradient gradient, SparseVector& sent, float lr);
  Sifted sift_velocity(Gradient gradient, SparseVector& sent);
  Gradient scaled(Gradient gradient, float lr) const;
  void check(const SparseVector& entries, const char* what) const;
  float clip_factor(const Gradient& gradient);
  Layout transfer_head(State& state);
  void transfer_body(State& state, LongVector& all_memory, LongVector& all_velocity);
  void read_body(State& state, const Layout& saved, std::span<const std::byte> before, LongVector& all_memory,
                 LongVector& all_velocity);
};

namespace {

using Names = std::unordered_map<std::string_view, const Tensor*>;

Names names_of(const Layout& layout) {
  Names names;
  for (const Tensor& tensor : layout.tensors()) names.emplace(tensor.name, &tensor);
  return names;
}

// The numbers of the tensors of `to`, found by name among `from`.
LongVector rearrange(const LongVector& numbers, const Names& from, const Layout& to) {
  LongVector result(to.dim());
  for (const Tensor& tensor : to.tensors()) {
    std::copy_n(numbers.data() + from.at(tensor.name)->begin, tensor.size, result.data() + tensor.begin);
  }
  return result;
}

// Does the saved layout hold every tensor that is wanted?
void check_tensors(const Names& saved, const Layout& wanted) {
  for (const Tensor& tensor : wanted.tensors()) {
    const auto found = saved.find(tensor.name);
    if (found == saved.end() || found->second->size != tensor.size) {
      throw UsageError(text("[state] tensor '", tensor.name, "' of ", tensor.size, " entries ",
                            found == saved.end() ? "was not saved" : text("was saved with ", found->second->size)));
    }
  }
}

}  // namespace

Sifter::Sifter(std::string_view sparsifier, std::string_view feedback, Place place)
    : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.feedback = parse_feedback(feedback);
  p.sparsifier_spec = sparsifier;
  p.feedback_spec = feedback;
  p.name = Spec(sparsifier).name();
  p.sparsifier = make_sparsifier(sparsifier, place);
  p.memory.resize(place.layout.dim());
  p.ledger.step = place.first_step;
  if (p.feedback.kind == Feedback::Kind::momentum) {
    p.velocity.resize(place.layout.dim());
    const auto units = make_units(place.layout, {});
    if (!units.empty()) p.whole = units.front();
    p.harvest = Harvest(place.pool);
  }
  p.place = std::move(place);
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
  const double limit = feedback.clip / std::sqrt(static_cast<double>(place.ranks));
  const double factor = limit / std::sqrt(norm2);
  return factor < 1 ? static_cast<float>(factor) : 1.0F;  // 1 too if the norm is not a number: sift refuses it
}

// velocity <- m*velocity + gradient. Returns the velocity as what is to be sifted.
Gradient Sifter::Parts::accumulate_velocity(Gradient gradient) {
  gradient.decay = feedback.momentum;
  const auto bad = harvest.take_all(whole, gradient, velocity.data(), kernels::kInfinityKey, nothing);
  if (bad) throw_bad_gradient(name, place, ledger.step, gradient, velocity, *bad);
  return velocity;
}

// A step of DGC: the velocity is what is sifted, and is cleared where an entry is sent.
Sifted Sifter::Parts::sift_velocity(Gradient gradient, SparseVector& sent) {
  gradient.scale = clip_factor(gradient);
  const Gradient total = accumulate_velocity(gradient);
  Sifted sifted;
  bool taken = false;
  try {
    sifted = sparsifier->sift(total, memory, sent);
    taken = true;
    masked.reserve(sent.size());
  } catch (...) {
    if (taken) sparsifier->undo(total, memory, sent);
    gradient.decay = feedback.momentum;
    harvest.subtract(whole, gradient, velocity.data());
    throw;
  }
  masked.clear();
  for (std::size_t i = 0; i < sent.size(); ++i) masked.push_back(std::exchange(velocity[sent.index(i)], 0.0F));
  return sifted;
}

void Sifter::sift(Gradient gradient, SparseVector& sent, float lr) {
  Parts& p = *parts_;
  p.can_undo = false;
  try {
    if (gradient.size != p.memory.size() || (gradient.data == nullptr && gradient.size != 0)) {
      throw UsageError(text("[", p.name, "] a gradient of ", gradient.data == nullptr ? 0 : gradient.size,
                            " entries does not fit a layout of ", p.memory.size()));
    }
    p.ledger_before = p.ledger;
    const Sifted sifted = p.sift(gradient, sent, lr);
    p.ledger.step += 1;
    p.ledger.entries = sent.size();
    p.ledger.sent_norm2 = sifted.sent_norm2;
    p.ledger.memory_norm2 = sifted.accumulated_norm2 - sifted.sent_norm2;
    p.ledger.total_error += p.ledger.memory_norm2;
  } catch (...) {
    sent.clear(p.memory.size());
    throw;
  }
  p.can_undo = true;
}

Sifted Sifter::Parts::sift(Gradient gradient, SparseVector& sent, float lr) {
  if (feedback.kind == Feedback::Kind::momentum) return sift_velocity(gradient, sent);
  const Sifted sifted = sparsifier->sift(scaled(gradient, lr), memory, sent);
  if (feedback.kind == Feedback::Kind::none) std::fill(memory.begin(), memory.end(), 0.0F);
  return sifted;
}

// The gradient with the factors of the feedback.
Gradient Sifter::Parts::scaled(Gradient gradient, float lr) const {
  if (feedback.scale_by_lr && !std::isfinite(lr)) throw UsageError(text("[ef] lr=", lr, " is not a finite number"));
  gradient.decay = feedback.decay;
  gradient.scale = feedback.scale_by_lr ? lr : 1.0F;
  return gradient;
}

void Sifter::undo(Gradient gradient, const SparseVector& sent, float lr) {
  Parts& p = *parts_;
  if (!p.can_undo || sent.size() != p.ledger.entries) {
    throw UsageError(text("[", p.name, "] there is no step of ", sent.size(), " entries to undo"));
  }
  p.check(sent, "undo");
  p.can_undo = false;
  if (p.feedback.kind == Feedback::Kind::momentum) {
    for (std::size_t i = 0; i < sent.size(); ++i) p.velocity[sent.index(i)] = p.masked[i];
    p.sparsifier->undo(p.velocity, p.memory, sent);
    gradient.scale = p.clip_factor(gradient);
    gradient.decay = p.feedback.momentum;
    p.harvest.subtract(p.whole, gradient, p.velocity.data());
  } else {
    p.sparsifier->undo(p.scaled(gradient, lr), p.memory, sent);
    if (p.feedback.kind == Feedback::Kind::none) std::fill(p.memory.begin(), p.memory.end(), 0.0F);
  }
  p.ledger = p.ledger_before;
}

void Sifter::flush(SparseVector& sent) {
  Parts& p = *parts_;
  if (!p.can_undo || sent.size() != p.ledger.entries) {
    throw UsageError(text("[", p.name, "] there is no step of ", sent.size(), " entries to flush"));
  }
  p.check(sent, "flush");
  if (sent.is_full()) return;
  std::vector<float> all(p.memory.begin(), p.memory.end());
  for (std::size_t i = 0; i < sent.size(); ++i) all[sent.indices[i]] = sent.values[i];
  if (p.feedback.kind == Feedback::Kind::momentum) {  // a velocity ends where its entry is sent
    std::vector<float> masked(p.velocity.begin(), p.velocity.end());
    for (std::size_t i = 0; i < sent.size(); ++i) masked[sent.indices[i]] = p.masked[i];
    p.masked = std::move(masked);
    std::fill(p.velocity.begin(), p.velocity.end(), 0.0F);
  }
  sent.clear(p.memory.size());
  sent.values = std::move(all);
  std::fill(p.memory.begin(), p.memory.end(), 0.0F);
  p.ledger.entries = sent.size();
  if (p.feedback.kind == Feedback::Kind::none) return;  // the rest was dropped already
  p.ledger.total_error -= p.ledger.memory_norm2;
  p.ledger.sent_norm2 += p.ledger.memory_norm2;
  p.ledger.memory_norm2 = 0;
}

void Sifter::Parts::check(const SparseVector& entries, const char* what) const {
  if (entries.dim == memory.size() && entries.is_valid()) return;
  throw UsageError(
      text("[", name, "] ", what, " got a vector that is not one of ", memory.size(), " entries, indices ascending"));
}

void Sifter::keep_rounding_loss(const SparseVector& sent, std::span<const float> received) {
  Parts& p = *parts_;
  p.check(sent, "keep_rounding_loss");
  p.can_undo = false;
  if (sent.size() != received.size()) {
    throw UsageError(
        text("[", p.name, "] the ", received.size(), " entries received are not the ", sent.size(), " sent"));
  }
  if (p.feedback.kind == Feedback::Kind::none) return;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float* const values = sent.values.data();
  bool fine = true;
  for (std::size_t i = 0; i < sent.size(); ++i) fine &= std::abs(values[i] - received[i]) <= kLargest;  // no NaN either
  for (std::size_t i = 0; !fine && i < sent.size(); ++i) {
    if (std::isfinite(values[i] - received[i])) continue;
    throw UsageError(
        text("[", p.name, "] entry ", sent.index(i), " was sent as ", values[i], " and received as ", received[i]));
  }
  float* const memory = p.memory.data();
  if (sent.is_full()) {
    for (std::size_t i = 0; i < sent.size(); ++i) memory[i] += values[i] - received[i];
  } else {
    for (std::size_t i = 0; i < sent.size(); ++i) memory[sent.indices[i]] += values[i] - received[i];
  }
}

void Sifter::observe(const SparseVector& sent, std::span<const float> update_at_sent) {
  parts_->check(sent, "observe");
  parts_->can_undo = false;
  parts_->sparsifier->observe(sent, update_at_sent);
}

std::uint64_t Sifter::step() const noexcept { return parts_->sparsifier->step(); }
bool Sifter::is_all_in_memory() const noexcept {
  return !parts_->sparsifier->remembers() && parts_->feedback.kind != Feedback::Kind::momentum;
}
float* Sifter::vote() { return parts_->sparsifier->vote(); }
const Layout& Sifter::layout() const noexcept { return parts_->place.layout; }
const Ledger& Sifter::ledger() const noexcept { return parts_->ledger; }
std::span<float> Sifter::memory() noexcept { return parts_->memory; }
std::span<const float> Sifter::memory() const noexcept { return parts_->memory; }
std::span<float> Sifter::velocity() noexcept { return parts_->velocity; }

std::span<float> Sifter::memory(std::string_view name) {
  const Tensor* const tensor = layout().find(name);
  if (tensor == nullptr) throw UsageError(text("[", parts_->name, "] there is no tensor '", name, "'"));
  return memory().subspan(tensor->begin, tensor->size);
}

void Sifter::Parts::transfer_body(State& state, LongVector& all_memory, LongVector& all_velocity) {
  state.array("memory", all_memory);
  state.array("velocity", all_velocity);
  state.value("ledger_step", ledger.step);
  state.value("ledger_entries", ledger.entries);
  state.value("ledger_sent_norm2", ledger.sent_norm2);
  state.value("ledger_memory_norm2", ledger.memory_norm2);
  state.value("ledger_total_error", ledger.total_error);
  sparsifier->transfer(state);
}

// The specs and the layout: what says whether a state fits. Returns the layout.
Layout Sifter::Parts::transfer_head(State& state) {
  std::string saved_sparsifier = sparsifier_spec;
  std::string saved_feedback = feedback_spec;
  state.string("sparsifier", saved_sparsifier);
  state.string("feedback", saved_feedback);
  if (saved_sparsifier != sparsifier_spec || saved_feedback != feedback_spec) {
    throw UsageError(text("[state] was saved by '", saved_sparsifier, "' with feedback '", saved_feedback,
                          "', this is '", sparsifier_spec, "' with '", feedback_spec, "'"));
  }
  return transfer_layout(state, place.layout);
}

std::vector<std::byte> Sifter::save() const {
  Parts& p = *parts_;  // transfer() both reads and writes; here it only reads
  State state;
  p.transfer_head(state);
  p.transfer_body(state, p.memory, p.velocity);
  return std::move(state).bytes();
}

// Reads what follows the head of a state saved with the layout `saved`; all or nothing, as `before` has it.
void Sifter::Parts::read_body(State& state, const Layout& saved, std::span<const std::byte> before,
                              LongVector& all_memory, LongVector& all_velocity) {
  try {
    transfer_body(state, all_memory, all_velocity);
    state.finish();
    if (all_memory.size() != saved.dim() ||
        all_velocity.size() != (feedback.kind == Feedback::Kind::momentum ? saved.dim() : 0)) {
      throw UsageError("[state] the memory does not fit the tensors");
    }
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (!std::all_of(all_memory.begin(), all_memory.end(), is_finite) ||
        !std::all_of(all_velocity.begin(), all_velocity.end(), is_finite)) {
      throw UsageError("[state] the memory holds a number that is not finite");
    }
  } catch (...) {
    State back(before);
    transfer_head(back);
    transfer_body(back, all_memory, all_velocity);
    throw;
  }
  can_undo = false;
}

void Sifter::inherit(std::span<const std::byte> bytes) {
  Parts& p = *parts_;
  State state(bytes);
  const Layout saved = p.transfer_head(state);
  state.moved = [](std::uint32_t) { return std::nullopt; };
  LongVector memory;
  LongVector velocity;
  p.read_body(state, saved, save(), memory, velocity);
}

void Sifter::load(std::span<const std::byte> bytes) {
  Parts& p = *parts_;
  State state(bytes);
  const Layout saved = p.transfer_head(state);
  const Layout& layout = p.place.layout;
  const Names saved_names = names_of(saved);
  const Names names = names_of(layout);
  check_tensors(saved_names, layout);
  const bool moved = saved != layout;
  if (moved) {
    state.moved = [&](std::uint32_t index) -> std::optional<std::uint32_t> {
      if (index >= saved.dim()) return std::nullopt;
      const Tensor& tensor = saved.at(index);
      const auto now = names.find(tensor.name);
      if (now == names.end()) return std::nullopt;
      return static_cast<std::uint32_t>(now->second->begin + (index - tensor.begin));
    };
  }
  LongVector memory;
  LongVector velocity;
  p.read_body(state, saved, save(), memory, velocity);
  p.memory = moved ? rearrange(memory, saved_names, layout) : std::move(memory);
  p.velocity = moved && !velocity.empty() ? rearrange(velocity, saved_names, layout) : std::move(velocity);
}

}  // namespace sparsewire
