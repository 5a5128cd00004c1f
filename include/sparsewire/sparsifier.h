// Chooses which entries of a gradient are sent.
//
// Error feedback and selection are one operation, `sift`: add the gradient to the error memory and move the entries
// worth sending out of it. A Sparsifier decides which entries those are; a Sifter (sifter.h) adds the memory, the
// feedback and the statistics.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

class State;

// Whether a ratio applies to the whole model or to each tensor separately.
enum class Scope : std::uint8_t { model, layer };

// Selects the random stream: workers and servers never draw the same numbers.
enum class Role : std::uint8_t { worker = 0, server = 1 };

// Everything that a sparsifier may depend on besides its spec and its input.
struct SifterContext {
  Layout layout;
  Scope scope = Scope::model;
  int rank = 0;  // of the worker; for a server, the number of its region
  int ranks = 1;
  double weight = 0;  // of this worker in the update; 0 means 1/ranks
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;  // the number of the first step; random draws and schedules use this numbering
  Role role = Role::worker;
  // If the layout is only a region of the model: the entries of the whole model, which k= applies to. 0: the layout is
  // the whole model.
  std::uint64_t model_dim = 0;
  Pool* pool = nullptr;  // borrowed; null: one thread
};

// Norms that a sift computes for the statistics. Summed in double over fixed blocks, so the bits do not depend on the
// number of threads or the SIMD level.
struct SiftNorms {
  double accumulated_norm2 = 0;  // ||decay*memory + scale*gradient||^2
  double sent_norm2 = 0;         // ||out||^2; the same bits as accumulated_norm2 if every non-zero entry is sent
};

// The floating-point mode must be the standard one (round to nearest, denormal numbers kept); a Sifter sees to that.
//
// THREADS: one caller at a time; uses SifterContext::pool inside.
class Sparsifier {
 public:
  virtual ~Sparsifier() = default;

  // memory <- decay*memory + scale*gradient; then moves the chosen entries from `memory` to `out`, indices ascending.
  // REQUIRES: gradient.size == memory.size() == layout.dim(); memory is finite.
  // ENSURES: per coordinate, the accumulated sum == what stays in the memory + what is in `out`, exactly.
  // Throws UsageError if the sizes differ, BadGradient if a sum is not finite; then the memory is as it was, up to
  // rounding, and the step does not count. COST: in the steady state one pass over memory and gradient, and no
  // allocation.
  virtual SiftNorms sift(Gradient gradient, std::span<float> memory, SparseVector& out) = 0;

  // Takes the last sift back: puts `sent` back into the memory and subtracts the gradient, up to rounding; the step
  // does not count. For a step that failed on another rank. REQUIRES: the same gradient, memory and entries; no
  // observe() in between.
  virtual void undo(Gradient gradient, std::span<float> memory, const SparseVector& sent) = 0;

  // Reports the result of the last round: the update of all workers at the entries of `sent`, 0 where an entry is not
  // in the update (a downlink may hold it back). RegTop-k uses it for its scores; the others ignore it.
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/) {}

  // Entries that one step is expected to send; by default all of them, however many there are.
  virtual double expected_entries() const { return std::numeric_limits<double>::infinity(); }

  // Whether all ranks have to agree on a number before the next sift, such as a measured threshold. True in the same
  // step on all ranks, and hardly ever. The code that connects the ranks then collects vote() from all of them and
  // calls set_vote() with the median of the votes; not at all if there are none.
  virtual bool is_voting() const noexcept { return false; }
  // This rank's number. std::nullopt if it measured none, because its region is empty or held too few entries.
  virtual std::optional<float> vote() const noexcept { return std::nullopt; }
  virtual void set_vote(float /*agreed*/) {}

  // The number of the next step.
  virtual std::uint64_t step() const noexcept = 0;

  // Whether later steps depend on more than the memory and the step number; then only serialize() preserves it.
  virtual bool remembers() const noexcept { return false; }

  // Saves or restores, with the same bits, everything that later steps depend on. Internal: called by Sifter::save()
  // and load().
  virtual void serialize(State& state) = 0;
};

// Makes a sparsifier from `name:key=value,key=value`. Throws UsageError if a name or key is unknown, or a value is out
// of range or does not fit the layout.
std::unique_ptr<Sparsifier> make_sparsifier(std::string_view spec, const SifterContext& context);

struct SparsifierInfo {
  std::string_view name;
  std::string_view summary;  // what it keeps, in about five words
  std::string_view example;  // a spec that works
};

// Every sparsifier.
std::span<const SparsifierInfo> sparsifiers() noexcept;

}  // namespace sparsewire
