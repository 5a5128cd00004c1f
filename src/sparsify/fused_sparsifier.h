// A sparsifier as a Sifter uses it: it adds the gradient to the error memory and takes its entries out in one
// operation. The sparsifiers of the library do both in one pass; one from outside is wrapped by chosen_outside.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "sparsewire/sparsifier.h"
#include "sparsify/error_memory.h"

namespace sparsewire {

// A step that sends all entries from where they are.
struct SiftedAll {
  double accumulated_norm2 = 0;  // as of sift()
  Gradient numbers;
};

// What has the name of a function of Sparsifier means the same. The floating-point mode must be the standard one; a
// Sifter sees to that.
class FusedSparsifier {
 public:
  virtual ~FusedSparsifier() = default;

  virtual SparsifierTraits traits() const { return {}; }
  virtual double expected_entries() const = 0;

  // memory <- decay*memory + scale*gradient; then moves the chosen entries from the memory to `out`, indices ascending.
  // A null gradient: the memory has the sums already. `unit` is what a gradient of size 1 adds to the memory: the
  // learning rate of the step if the memory holds lr*gradient, else 1. Returns ||sums||^2, unit by unit in the order of
  // kernels/norm.h.
  // REQUIRES: gradient->size == memory.size() == layout.dim(); memory is finite.
  // ENSURES: per coordinate, the accumulated sum == what stays in the memory + what is in `out`, exactly.
  // Throws BadGradient if a sum is not finite; then every entry has made a round trip (kernels/sweep.h), and the step
  // does not count. COST: in the steady state one pass over memory and gradient, and no allocation.
  virtual double sift(const kernels::ScaledGradient* gradient, float unit, ErrorMemory& memory, SparseVector& out) = 0;

  // The same, for a step that sends all entries: they stay on the device where the memory is. Nothing if not all are
  // sent: then nothing has happened.
  virtual std::optional<SiftedAll> sift_all(const kernels::ScaledGradient& /*gradient*/, ErrorMemory& /*memory*/) {
    return std::nullopt;
  }

  // Takes the last sift back, and what followed it: puts `sent` back into the memory and takes the gradient out again;
  // the step does not count. REQUIRES: the same gradient and memory, `sent` as sift() returned it.
  virtual void undo(const kernels::ScaledGradient* gradient, ErrorMemory& memory, const SparseVector& sent) = 0;

  // `came_back`: for each entry whether it is in the update, or was withheld by a downlink; empty: all are.
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/,
                       std::span<const std::uint8_t> /*came_back*/) {}
  virtual bool is_voting() const noexcept { return false; }
  virtual std::optional<float> vote() const noexcept { return std::nullopt; }
  virtual void set_vote(float /*agreed*/) {}

  // The threshold in units of the gradient; nothing while there is none.
  virtual std::optional<double> threshold() const noexcept { return std::nullopt; }

  virtual void learn_from(std::span<const Predecessor<FusedSparsifier>> /*others*/) {}

  // The number of the next step.
  virtual std::uint64_t step() const noexcept = 0;
  virtual void set_step(std::uint64_t step) noexcept = 0;
  // Saves or restores, with the same bits, everything that later steps depend on.
  virtual void serialize(State& state) = 0;
};

// Makes a sparsifier from `name:key=value,key=value`. Throws UsageError if a name or key is unknown, or a value is out
// of range or does not fit the layout.
std::unique_ptr<FusedSparsifier> make_sparsifier(std::string_view spec, const SifterContext& context);

}  // namespace sparsewire
