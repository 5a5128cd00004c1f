// Which entries of a gradient travel.
//
// Error feedback and selection are one operation, `sift`: move the entries worth sending out of the memory.
// A Sparsifier decides which those are; a Sifter (sifter.h) adds the memory, the feedback and the statistics.
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

// Whether a ratio counts over the whole model or over each tensor by itself.
enum class Scope : std::uint8_t { model, layer };

// Which of the random streams of a run: those of workers and servers never coincide.
enum class Role : std::uint8_t { worker = 0, server = 1 };

// Where a sparsifier works. Everything it may depend on besides its spec and the numbers it is given.
struct SifterContext {
  Layout layout;
  Scope scope = Scope::model;
  int rank = 0;  // of a worker; of a server, its region
  int ranks = 1;
  double weight = 0;  // of this worker in the update; 0 stands for 1/ranks
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;  // the number of the first step: random draws and schedules count from it
  Role role = Role::worker;
  std::uint64_t model_dim =
      0;                 // entries of the model, if the layout is a region of it: what k= counts over; 0: it is all
  Pool* pool = nullptr;  // borrowed; null is one thread
};

// What a sift saw, for the statistics. Summed in double over fixed blocks: the same bits on any number
// of threads and at every SIMD level.
struct SiftNorms {
  double accumulated_norm2 = 0;  // ||decay*memory + scale*gradient||^2
  double sent_norm2 = 0;         // ||out||^2; equal to the former, bit for bit, if every non-zero entry is sent
};

// THREADS: one caller at a time; uses SifterContext::pool inside.
class Sparsifier {
 public:
  virtual ~Sparsifier() = default;

  // memory <- decay*memory + scale*gradient; then moves the chosen entries from `memory` to `out`, indices ascending.
  // REQUIRES: gradient.size == memory.size() == layout.dim(); memory is finite.
  // ENSURES: per coordinate, what was there plus what came in == what stays + what is sent, exactly.
  // Throws UsageError if the sizes differ, BadGradient if a sum is not finite: then the memory is as it was, to
  // rounding, and the step does not count. COST: one pass over memory and gradient in the steady state, which allocates
  // nothing.
  virtual SiftNorms sift(Gradient gradient, std::span<float> memory, SparseVector& out) = 0;

  // Takes the last sift back: `sent` into the memory, the gradient out of it, to rounding; the step does not count.
  // For a step that failed on another rank. REQUIRES: the same gradient, memory and entries; no observe in between.
  virtual void undo(Gradient gradient, std::span<float> memory, const SparseVector& sent) = 0;

  // What all workers together made of the last round: the update at the entries of `sent`, 0 where an entry did not
  // come back. RegTop-k learns from it; the others ignore it.
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/) {}

  // Entries that one step is expected to send; by default all of them, however many there are.
  virtual double expected_entries() const { return std::numeric_limits<double>::infinity(); }

  // Whether all ranks have to agree on a number before the next sift, such as a measured threshold. True in the same
  // step on all ranks, and hardly ever. Whoever connects the ranks then asks all of them for vote() and calls
  // set_vote() with the median of the votes; not at all if there are none.
  virtual bool is_voting() const noexcept { return false; }
  // This rank's number. Nothing if it measured none, because its region is empty or held only zeros.
  virtual std::optional<float> vote() const noexcept { return std::nullopt; }
  virtual void set_vote(float /*agreed*/) {}

  // The number of the next step.
  virtual std::uint64_t step() const noexcept = 0;

  // Whether later steps depend on more than the memory and the number of the step: then only serialize() can keep it.
  virtual bool remembers() const noexcept { return false; }

  // Saves or restores everything that decides later steps, bit for bit. Internal: Sifter::save and load call it.
  virtual void serialize(State& state) = 0;
};

// Makes a sparsifier from `name:key=value,key=value`. Throws UsageError: an unknown name or key, a value out of range,
// or one that does not fit the layout.
std::unique_ptr<Sparsifier> make_sparsifier(std::string_view spec, const SifterContext& context);

struct SparsifierInfo {
  std::string_view name;
  std::string_view summary;  // what it keeps, in five words
  std::string_view example;  // a spec that works
};

// Every sparsifier there is.
std::span<const SparsifierInfo> sparsifiers() noexcept;

}  // namespace sparsewire
