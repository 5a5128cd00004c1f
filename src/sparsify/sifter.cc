#include "sparsewire/sifter.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/number_types.h"
#include "core/slices.h"
#include "core/standard_float_mode.h"
#include "core/valid.h"
#include "kernels/norm.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "sparsify/bad_gradient.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {
namespace {

// Throws UsageError if no tensor has that name.
template <class Parts>
const TensorRange& find_tensor(const Parts& parts, std::string_view name) {
  const TensorRange* const found = parts.context.layout.find(name);
  if (found == nullptr) throw UsageError(fmt::format("[{}] the layout has no tensor '{}'", parts.name, name));
  return *found;
}

void check_host_size(const std::string& name, const Device& device, std::size_t size, std::size_t wanted,
                     const char* what) {
  if (device.kind != Device::host) {
    throw UsageError(fmt::format("[{}] {}: the numbers must be on the host", name, what));
  }
  if (size != wanted) {
    throw UsageError(fmt::format("[{}] {}: {} numbers were given for {} entries", name, what, size, wanted));
  }
}

// ||a - b||^2 over at most a tile of numbers, of the differences as floats. In eight sums, so that it is fast.
double distance2(const float* a, const float* b, std::size_t n) {
  std::array<double, 8> sums{};
  const auto add = [&](std::size_t i, double& sum) {
    const auto difference = static_cast<double>(a[i] - b[i]);
    sum += difference * difference;
  };
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) add(i + lane, sums[lane]);
  }
  for (; i < n; ++i) add(i, sums[0]);
  return kernels::add_pairwise(sums.data(), sums.size());
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

// The same for a velocity, with DGC's local clipping: the norm of this worker's gradient is cut to clip/sqrt(ranks), so
// that the sum over the workers keeps to about clip.
kernels::ScaledGradient Sifter::Parts::clipped(const Gradient& gradient, float unscale) {
  kernels::ScaledGradient result = scaled(gradient, 1.0F, unscale);
  result.decay = feedback.momentum;
  if (feedback.clip == 0) return result;
  gradient_norm = std::sqrt(velocity.norm2(gradient));
  const double norm = gradient_norm * std::abs(static_cast<double>(unscale));
  const double limit = feedback.clip / std::sqrt(static_cast<double>(context.ranks));
  const double factor = limit / norm;
  if (factor < 1) result.scale *= static_cast<float>(factor);  // not if the norm is NaN: sift then refuses the gradient
  return result;
}

// Whether the velocity will be finite with this addend, whatever it is now: then no gradient can be bad. No number is
// larger than the norm.
bool Sifter::Parts::stays_finite(const kernels::ScaledGradient& addend) const noexcept {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double added = std::abs(static_cast<double>(addend.scale)) * gradient_norm;
  return feedback.clip != 0 && (addend.decay * kLargest + added) * (1 + 1e-6) < kLargest;
}

// A step of DGC: velocity <- m*velocity + gradient; the velocity is sifted, and cleared where an entry is sent.
SiftNorms Sifter::Parts::sift_velocity(const Gradient& gradient, SparseVector& sent, float unscale) {
  const kernels::ScaledGradient addend = clipped(gradient, unscale);
  // On a device the pass over the memory adds it, too: so the velocity is read once.
  const bool adds_later = velocity.is_on_device() && stays_finite(addend);
  if (!adds_later) {
    if (const auto bad = velocity.accumulate(&addend)) {
      throw_bad_gradient(name, context, stats.step, addend, velocity, *bad);
    }
  }
  kernels::ScaledGradient total = velocity.as_gradient();
  if (adds_later) total.first_add = &addend;
  SiftNorms sifted;
  bool taken = false;
  try {
    sifted = sparsifier->sift(&total, 1, memory, sent);
    taken = true;
    velocity.clear_at(sent, cleared);
  } catch (...) {
    if (taken) sparsifier->undo(&total, memory, sent);
    velocity.restore(&addend);
    throw;
  }
  return sifted;
}

// For feedback none. What is not sent is dropped, so numbers that were in the memory before are copied first: undo()
// could not find them otherwise.
void Sifter::Parts::remember_memory() {
  memory_before.clear();
  const auto is_number = [](float number) { return number != 0; };
  const std::span<const float> numbers = memory.numbers();
  if (may_hold_numbers && std::any_of(numbers.begin(), numbers.end(), is_number)) {
    memory_before.assign(numbers.begin(), numbers.end());
  }
}

SiftNorms Sifter::Parts::sift_without_feedback(const kernels::ScaledGradient& gradient, SparseVector& sent) {
  remember_memory();
  const SiftNorms sifted = sparsifier->sift(&gradient, 1, memory, sent);
  memory.clear();
  return sifted;
}

SiftNorms Sifter::Parts::sift(const Gradient& gradient, SparseVector& sent, float lr, float unscale) {
  check_gradient(gradient);
  move_to(gradient.device);
  if (has_velocity()) return sift_velocity(gradient, sent, unscale);
  const kernels::ScaledGradient in_units_of_memory = scaled(gradient, lr, unscale);
  if (feedback.kind == Feedback::Kind::none) return sift_without_feedback(in_units_of_memory, sent);
  return sparsifier->sift(&in_units_of_memory, feedback.scale_by_lr ? lr : 1.0F, memory, sent);
}

void Sifter::Parts::count_step(const SiftNorms& sifted, std::uint64_t entries) {
  stats_before = stats;
  stats.step += 1;
  stats.entries = entries;
  stats.sent_norm2 = sifted.sent_norm2;
  stats.memory_norm2 = sifted.accumulated_norm2 - sifted.sent_norm2;
  stats.total_error += stats.memory_norm2;
}

// Calls sift() and counts the step; after an exception `sent` is empty.
template <class Sift>
void Sifter::Parts::take_step(SparseVector& sent, Sift sift) {
  const StandardFloatMode mode;
  can_undo = can_flush = is_in_frame = false;
  try {
    const SiftNorms sifted = sift();
    count_step(sifted, sent.size());
  } catch (...) {
    sent.clear(memory.size());
    throw;
  }
  can_undo = can_flush = true;
}

void Sifter::sift(const Gradient& gradient, SparseVector& sent, float lr, float unscale) {
  Parts& p = *parts_;
  p.take_step(sent, [&] { return p.sift(gradient, sent, lr, unscale); });
}

bool Sifter::sift_into(const Gradient& gradient, FramePlanner& planner, std::vector<std::byte>& frame,
                       SparseVector& sent, float lr, float unscale) {
  Parts& p = *parts_;
  frame.clear();
  if (p.feedback.kind != Feedback::Kind::ef || gradient.device.kind == Device::host) {
    sift(gradient, sent, lr, unscale);
    return false;
  }
  const StandardFloatMode mode;
  p.can_undo = p.can_flush = p.is_in_frame = false;
  p.check_gradient(gradient);
  p.move_to(gradient.device);
  const auto sifted = p.sparsifier->sift_into(p.scaled(gradient, lr, unscale), p.memory, planner, frame, sent);
  if (!sifted) {
    sift(gradient, sent, lr, unscale);
    return false;
  }
  p.count_step(sifted->norms, sifted->entries);
  p.is_in_frame = !frame.empty();
  p.can_undo = true;
  p.can_flush = !p.is_in_frame;
  if (p.is_in_frame) p.count_rounding_loss(sifted->rounding_loss2);
  return p.is_in_frame;
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
      const SiftNorms sifted = p.sparsifier->sift(nullptr, lr, p.memory, sent);
      if (p.feedback.kind == Feedback::Kind::none) p.memory.clear();
      return sifted;
    } catch (...) {
      p.memory.take_back_sum(sum);
      throw;
    }
  });
}

void Sifter::Parts::begin_undo(const SparseVector& sent) {
  if (!can_undo || (is_in_frame ? sent.size() != 0 : sent.size() != stats.entries)) {
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
  if (p.is_in_frame) p.memory.put_taken_back();
  if (p.has_velocity()) {
    p.velocity.put_back(sent, p.cleared);
    const kernels::ScaledGradient total = p.velocity.as_gradient();
    p.sparsifier->undo(&total, p.memory, sent);
    const kernels::ScaledGradient addend = p.clipped(gradient, unscale);
    p.velocity.restore(&addend);
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

// ||sent - received||^2, tile by tile: the same bits on any number of threads. It is not finite if a difference is not:
// squares of floats and their sums are far below the largest double.
double Sifter::Parts::rounding_loss2(const SparseVector& sent, std::span<const float> received) {
  const std::size_t tiles = kernels::tiles_of(sent.size());
  if (loss_of_tiles.size() < tiles) loss_of_tiles.resize(tiles + tiles / 4);
  for_each_slice(context.pool, sent.size(), kernels::kTile, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t first = begin; first < end; first += kernels::kTile) {
      loss_of_tiles[first / kernels::kTile] =
          distance2(sent.values.data() + first, received.data() + first, std::min(kernels::kTile, end - first));
    }
  });
  return kernels::sum_tiles(loss_of_tiles.data(), tiles);
}

void Sifter::keep_rounding_loss(const SparseVector& sent, std::span<const float> received) {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check(sent, "keep_rounding_loss");
  p.can_flush = false;
  if (sent.size() != received.size()) {
    throw UsageError(fmt::format("[{}] keep_rounding_loss: {} values were received, but {} were sent", p.name,
                                 received.size(), sent.size()));
  }
  const double change = p.rounding_loss2(sent, received);
  const float* const values = sent.values.data();
  for (std::size_t i = 0; !std::isfinite(change) && i < sent.size(); ++i) {
    if (std::isfinite(values[i] - received[i])) continue;
    throw UsageError(
        fmt::format("[{}] entry {} was sent as {} and received as {}", p.name, sent.index(i), values[i], received[i]));
  }
  // Often nothing is lost: a server that answers in the format of what it got. On a device this saves a copy.
  if (change != 0 && p.feedback.kind != Feedback::Kind::none) p.memory.add_differences(sent, received);
  p.count_rounding_loss(change);
}

void Sifter::Parts::count_rounding_loss(double loss2) {
  stats.memory_norm2 += loss2;
  stats.total_error += loss2;
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

std::vector<float> Sifter::memory() const {
  const std::span<const float> numbers = parts_->memory.numbers();
  return {numbers.begin(), numbers.end()};
}

std::vector<float> Sifter::velocity() const {
  const std::span<const float> numbers = parts_->velocity.numbers();
  return {numbers.begin(), numbers.end()};
}

void Sifter::read_memory(std::string_view tensor, WritableNumbers numbers) const {
  const TensorRange& range = find_tensor(*parts_, tensor);
  check_host_size(parts_->name, numbers.device, numbers.size, range.size, "read_memory");
  std::vector<float> copy(range.size);
  parts_->memory.read(range.begin, copy);
  with_numbers(numbers, [&](auto* to, auto rounded) {
    for (std::size_t i = 0; i < copy.size(); ++i) to[i] = rounded(copy[i]);
  });
}

void Sifter::write_memory(std::string_view tensor, const Gradient& numbers) {
  const TensorRange& range = find_tensor(*parts_, tensor);
  parts_->write(parts_->memory, range.begin, range.size, numbers, "write_memory");
}
void Sifter::write_memory(const Gradient& numbers) {
  parts_->write(parts_->memory, 0, parts_->memory.size(), numbers, "write_memory");
}
void Sifter::write_velocity(const Gradient& numbers) {
  parts_->write(parts_->velocity, 0, parts_->velocity.size(), numbers, "write_velocity");
}

void Sifter::Parts::write(ErrorMemory& to, std::size_t begin, std::size_t size, const Gradient& numbers,
                          const char* what) {
  check_host_size(name, numbers.device, numbers.size, size, what);
  std::vector<float> copy(size);
  for (std::size_t i = 0; i < size; ++i) {
    copy[i] = kernels::number_at(numbers, i);
    if (!std::isfinite(copy[i])) {
      throw UsageError(fmt::format("[{}] {}: number {} is {}, which is not finite", name, what, i, copy[i]));
    }
  }
  to.write(begin, copy);
  may_hold_numbers = true;
  can_undo = can_flush = false;
}

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
