#include "sparsewire/sifter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/valid.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsewire/support/float_mode.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {

Sifter::Sifter(std::string_view sparsifier, std::string_view feedback, SifterContext context)
    : parts_(std::make_unique<Parts>()) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.feedback = parse_feedback(feedback);
  p.sparsifier_spec = sparsifier;
  p.feedback_spec = feedback;
  p.name = Spec(sparsifier).name();
  p.sparsifier = make_sparsifier(sparsifier, context);
  p.memory = ErrorMemory(context.layout.dim(), context.pool, context.device);
  p.stats.step = context.first_step;
  if (p.has_velocity()) p.velocity = ErrorMemory(context.layout.dim(), context.pool, context.device);
  p.context = std::move(context);
}

Sifter::~Sifter() = default;
Sifter::Sifter(Sifter&&) noexcept = default;
Sifter& Sifter::operator=(Sifter&&) noexcept = default;

void Sifter::Parts::check_gradient(const Gradient& gradient) const {
  if (gradient.size != memory.size() || (gradient.data == nullptr && gradient.size != 0)) {
    throw UsageError(fmt::format("[{}] a gradient of {} entries does not fit a layout of {}", name,
                                 gradient.data == nullptr ? 0 : gradient.size, memory.size()));
  }
}

// Where the gradients are. The velocity is looked at, too, because its move may have failed before.
void Sifter::Parts::move_to(Device device) {
  memory.move_to(device);
  if (has_velocity()) velocity.move_to(device);
}

// The gradient with the factors that the feedback gives it.
kernels::ScaledGradient Sifter::Parts::scaled(const Gradient& gradient, float lr, float unscale) const {
  if (feedback.scale_by_lr && !std::isfinite(lr)) {
    throw UsageError(fmt::format("[ef] lr={} is not a finite number", lr));
  }
  if (!std::isfinite(unscale)) throw UsageError(fmt::format("[{}] unscale={} is not a finite number", name, unscale));
  kernels::ScaledGradient scaled = gradient;
  scaled.decay = feedback.decay;
  scaled.scale = feedback.scale_by_lr ? unscale * lr : unscale;
  return scaled;
}

// For feedback none. What is not sent is dropped, so numbers that were in the memory before are copied first: undo()
// could not find them otherwise.
void Sifter::Parts::remember_memory() {
  memory_before.clear();
  if (!may_hold_numbers) return;  // numbers() copies those of a GPU
  const auto is_number = [](float number) { return number != 0; };
  const std::span<const float> numbers = memory.numbers();
  if (std::any_of(numbers.begin(), numbers.end(), is_number)) memory_before.assign(numbers.begin(), numbers.end());
}

double Sifter::Parts::sift_without_feedback(const kernels::ScaledGradient& gradient, SparseVector& sent) {
  remember_memory();
  const double accumulated_norm2 = sparsifier->sift(&gradient, 1, memory, sent);
  memory.clear();
  return accumulated_norm2;
}

double Sifter::Parts::sift(const Gradient& gradient, SparseVector& sent, float lr, float unscale) {
  check_gradient(gradient);
  move_to(gradient.device);
  if (has_velocity()) return sift_velocity(gradient, sent, unscale);
  const kernels::ScaledGradient in_units_of_memory = scaled(gradient, lr, unscale);
  if (feedback.kind == Feedback::Kind::none) return sift_without_feedback(in_units_of_memory, sent);
  return sparsifier->sift(&in_units_of_memory, feedback.scale_by_lr ? lr : 1.0F, memory, sent);
}

// The two sums are rounded separately. Where all entries are sent, nothing is left, also not by rounding.
void Sifter::Parts::count_step(double accumulated_norm2, double sent_norm2, std::uint64_t entries) {
  stats_before = stats;
  stats.step += 1;
  stats.entries = entries;
  stats.sent_norm2 = sent_norm2;
  stats.memory_norm2 = entries == memory.size() ? 0 : std::max(0.0, accumulated_norm2 - sent_norm2);
  stats.total_error += stats.memory_norm2;
}

// Calls sift() and counts the step; after an exception `sent` is empty.
template <class Sift>
void Sifter::Parts::take_step(SparseVector& sent, Sift sift) {
  const StandardFloatMode mode;
  can_undo = can_flush = is_taken = false;
  try {
    const double accumulated_norm2 = sift();
    const bool is_whole = sent.is_full();  // then the two sums are one
    count_step(accumulated_norm2, is_whole ? accumulated_norm2 : memory.norm2(Gradient(sent.values)), sent.size());
  } catch (...) {
    sent.clear(memory.size());
    sent.draw = {};  // how far it had come does not matter
    throw;
  }
  can_undo = can_flush = true;
}

void Sifter::sift(const Gradient& gradient, SparseVector& sent, float lr, float unscale) {
  Parts& p = *parts_;
  p.take_step(sent, [&] { return p.sift(gradient, sent, lr, unscale); });
}

std::optional<Gradient> Sifter::sift_all(const Gradient& gradient, float lr, float unscale) {
  Parts& p = *parts_;
  if (p.feedback.kind != Feedback::Kind::ef || gradient.device.kind == Device::host) return std::nullopt;
  const StandardFloatMode mode;
  p.can_undo = p.can_flush = p.is_taken = false;
  p.check_gradient(gradient);
  p.move_to(gradient.device);
  const auto sifted = p.sparsifier->sift_all(p.scaled(gradient, lr, unscale), p.memory);
  if (!sifted) return std::nullopt;
  p.count_step(sifted->accumulated_norm2, sifted->accumulated_norm2, p.memory.size());
  p.is_taken = p.can_undo = true;
  return sifted->numbers;
}

void Sifter::sift(const SparseVector& sum, SparseVector& sent, float lr) {
  Parts& p = *parts_;
  p.take_step(sent, [&] {
    p.check(sum, "sift");
    if (!std::isfinite(lr)) throw UsageError(fmt::format("[{}] lr={} is not a finite number", p.name, lr));
    if (p.has_velocity() || p.feedback.decay != 1) {
      throw UsageError(
          fmt::format("[{}] a sparse sum can be sifted with feedback none, or ef and decay 1 only", p.name));
    }
    if (p.feedback.kind == Feedback::Kind::none) p.remember_memory();
    if (const auto bad = p.memory.add_sum(sum)) {
      throw BadGradient(fmt::format("[{}] rank {}, step {}: at index {} the sum is too large for a float; the step was "
                                    "taken back",
                                    p.name, p.context.rank, p.stats.step, *bad),
                        p.context.rank, p.stats.step, *bad);
    }
    try {
      const double accumulated_norm2 = p.sparsifier->sift(nullptr, lr, p.memory, sent);
      if (p.feedback.kind == Feedback::Kind::none) p.memory.clear();
      return accumulated_norm2;
    } catch (...) {
      p.memory.take_back_sum(sum);
      throw;
    }
  });
}

void Sifter::Parts::begin_undo(const SparseVector& sent) {
  if (!can_undo || (is_taken ? sent.size() != 0 : sent.size() != stats.entries)) {
    throw UsageError(fmt::format("[{}] undo: there is no step to take back that sent {} entries", name, sent.size()));
  }
  check(sent, "undo");
  can_undo = can_flush = false;
  stats = stats_before;
}

void Sifter::undo(const Gradient& gradient, const SparseVector& sent, float lr, float unscale) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check_gradient(gradient);
  if (gradient.device.kind != Device::host ? gradient.device != p.memory.device() : p.memory.is_on_device()) {
    throw UsageError(fmt::format("[{}] undo: the gradient is on another device than in the step", p.name));
  }
  p.begin_undo(sent);
  if (p.is_taken) p.memory.put_all_back();
  if (p.has_velocity()) {
    p.velocity.put_back(sent, p.cleared);
    const kernels::ScaledGradient total = p.velocity.as_gradient();
    p.sparsifier->undo(&total, p.memory, sent);
    p.restore_velocity(gradient, unscale);
    return;
  }
  const kernels::ScaledGradient in_units_of_memory = p.scaled(gradient, lr, unscale);
  p.sparsifier->undo(&in_units_of_memory, p.memory, sent);
  if (p.feedback.kind != Feedback::Kind::none) return;
  p.memory.clear();
  p.memory.write(0, p.memory_before);
}

void Sifter::undo(const SparseVector& sum, const SparseVector& sent) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check(sum, "undo");
  p.begin_undo(sent);
  p.sparsifier->undo(nullptr, p.memory, sent);
  p.memory.take_back_sum(sum);
  if (p.feedback.kind != Feedback::Kind::none) return;
  p.memory.clear();
  p.memory.write(0, p.memory_before);
}

Device Sifter::device() const noexcept { return parts_->memory.device(); }

void Sifter::move_to(Device device) {
  Parts& p = *parts_;
  if (device == p.memory.device()) return;
  p.move_to(device);
  p.can_undo = p.can_flush = false;
}

bool Sifter::can_undo() const noexcept { return parts_->can_undo; }

void Sifter::flush(SparseVector& sent) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  if (!p.can_flush || sent.size() != p.stats.entries) {
    throw UsageError(fmt::format("[{}] flush: the last call was not a sift that sent {} entries", p.name, sent.size()));
  }
  p.check(sent, "flush");
  if (sent.is_full()) return;
  p.all.resize(p.memory.size());
  if (p.has_velocity()) p.cleared.reserve(p.memory.size());  // nothing is allocated after the first change
  if (p.has_velocity()) {  // a velocity is cleared where its entry is sent: everywhere
    p.velocity.read(0, p.all);
    for (std::size_t i = 0; i < sent.size(); ++i) p.all[sent.indices[i]] = p.cleared[i];
    p.cleared.swap(p.all);
    p.all.resize(p.memory.size());
    p.velocity.clear();
  }
  p.memory.read(0, p.all);
  for (std::size_t i = 0; i < sent.size(); ++i) p.all[sent.indices[i]] = sent.values[i];
  sent.clear(p.memory.size());
  sent.values.swap(p.all);
  p.memory.clear();
  p.stats.entries = sent.size();
  if (p.feedback.kind == Feedback::Kind::none) return;  // the rest was dropped already
  p.stats.total_error -= p.stats.memory_norm2;
  p.stats.sent_norm2 += p.stats.memory_norm2;
  p.stats.memory_norm2 = 0;
}

void Sifter::Parts::check(const SparseVector& entries, const char* what) const {
  if (entries.dim == memory.size() && is_valid(entries, context.pool)) return;
  throw UsageError(
      fmt::format("[{}] {}: this is not a vector of dimension {} with ascending indices", name, what, memory.size()));
}

void Sifter::observe(const SparseVector& sent, std::span<const float> update_at_sent,
                     std::span<const std::uint8_t> came_back) {
  const StandardFloatMode mode;
  parts_->check(sent, "observe");
  if (!came_back.empty() && came_back.size() != sent.size()) {
    throw UsageError(fmt::format("[{}] observe: came_back has {} flags for {} entries", parts_->name, came_back.size(),
                                 sent.size()));
  }
  parts_->can_flush = false;
  parts_->sparsifier->observe(sent, update_at_sent, came_back);
}

SparsifierTraits Sifter::traits() const { return parts_->sparsifier->traits(); }
std::uint64_t Sifter::step() const noexcept { return parts_->sparsifier->step(); }
void Sifter::set_step(std::uint64_t step) noexcept {
  parts_->sparsifier->set_step(step);
  parts_->stats.step = step;
  parts_->can_undo = parts_->can_flush = false;
}
bool Sifter::is_all_in_memory() const { return !traits().remembers && !parts_->has_velocity(); }
double Sifter::expected_entries() const {
  return std::min(parts_->sparsifier->expected_entries(), static_cast<double>(layout().dim()));
}
bool Sifter::is_voting() const noexcept { return parts_->sparsifier->is_voting(); }
std::optional<float> Sifter::vote() const noexcept { return parts_->sparsifier->vote(); }
void Sifter::set_vote(float agreed) { parts_->sparsifier->set_vote(agreed); }
std::optional<double> Sifter::threshold() const noexcept { return parts_->sparsifier->threshold(); }
const Layout& Sifter::layout() const noexcept { return parts_->context.layout; }
const Feedback& Sifter::feedback() const noexcept { return parts_->feedback; }
const SiftStats& Sifter::stats() const noexcept { return parts_->stats; }

void Sifter::continue_from(const Sifter& other) {
  Parts& p = *parts_;
  const Parts& o = *other.parts_;
  if (p.context.layout != o.context.layout) throw UsageError("[sifter] continue_from: the layouts differ");
  if (p.feedback.kind != o.feedback.kind || p.feedback.scale_by_lr != o.feedback.scale_by_lr) {
    throw UsageError(
        fmt::format("[sifter] feedback '{}' cannot continue what '{}' has kept", p.feedback_spec, o.feedback_spec));
  }
  p.memory.write(0, o.memory.numbers());
  if (p.has_velocity()) p.velocity.write(0, o.velocity.numbers());
  p.may_hold_numbers = true;
  const std::uint64_t dim = p.context.layout.dim();
  const Predecessor<Sifter> itself{.learner = &other,
                                   .only_options_changed = true,
                                   .same_weights = true,
                                   .entries = dim,
                                   .moved = {{.from = 0, .to = 0, .size = dim}}};
  learn_from({&itself, 1});
  p.sparsifier->set_step(o.sparsifier->step());
  p.stats = o.stats;
}

void Sifter::learn_from(std::span<const Predecessor<Sifter>> others) {
  const StandardFloatMode mode;
  std::vector<Predecessor<FusedSparsifier>> sparsifiers;
  for (const Predecessor<Sifter>& other : others) {
    sparsifiers.push_back(other.with<FusedSparsifier>(other.learner->parts_->sparsifier.get()));
  }
  parts_->sparsifier->learn_from(sparsifiers);
  parts_->can_undo = parts_->can_flush = false;
}

}  // namespace sparsewire
