// Saves a Sifter and loads it, also with other positions of its tensors.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "sparsewire/errors.h"
#include "sparsify/sifter_parts.h"

namespace sparsewire {
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

void Sifter::Parts::serialize_body(State& state, LongVector& all_memory, LongVector& all_velocity) {
  state.array("memory", all_memory);
  state.array("velocity", all_velocity);
  state.value("ledger_step", stats.step);
  state.value("ledger_entries", stats.entries);
  state.value("ledger_sent_norm2", stats.sent_norm2);
  state.value("ledger_memory_norm2", stats.memory_norm2);
  state.value("ledger_total_error", stats.total_error);
  serialize_sparsifier(state);
}

// The sparsifier has a state of its own, so that it can take any names. In version 1 its fields were among the others.
void Sifter::Parts::serialize_sparsifier(State& state) {
  if (!state.saving() && !state.has("sparsifier_state")) {
    sparsifier->serialize(state);
    return;
  }
  state.nested("sparsifier_state", [&](State& own) { sparsifier->serialize(own); });
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
  LongVector memory(p.memory.numbers().begin(), p.memory.numbers().end());
  LongVector velocity(p.velocity.numbers().begin(), p.velocity.numbers().end());
  p.serialize_body(state, memory, velocity);
  return std::move(state).bytes();
}

// Reads what follows the head of a state that was saved with the layout `saved`. If that fails, everything is restored
// from `before`.
void Sifter::Parts::read_body(State& state, const Layout& saved, std::span<const std::byte> before,
                              LongVector& all_memory, LongVector& all_velocity) {
  try {
    serialize_body(state, all_memory, all_velocity);
    state.finish();
    if (all_memory.size() != saved.dim() || all_velocity.size() != (has_velocity() ? saved.dim() : 0)) {
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
  can_undo = can_flush = false;
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
  p.memory.write(0, moved ? rearrange(memory, saved_names, layout) : memory);
  if (p.has_velocity()) p.velocity.write(0, moved ? rearrange(velocity, saved_names, layout) : velocity);
}

}  // namespace sparsewire
