// Chooses which entries of a gradient are sent.
//
// A Sifter (sifter.h) adds the gradient to the error memory and asks a sparsifier which of the sums to send. The
// library has its own; `sparsewire list` shows them. To write another, derive from Sparsifier and register it: then its
// name works in every spec string. docs/guides/extending.md shows one from beginning to end, and
// sparsewire/testing/sparsifier_conformance.h tests it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sparsewire/gradient.h"
#include "sparsewire/layout.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/spec.h"
#include "sparsewire/state.h"

namespace sparsewire {

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
  // Where the error memory is before the first step, after which it is where the gradient was.
  Device device = {};
};

// What those who use a sparsifier have to know about it.
struct SparsifierTraits {
  bool observes = false;      // it wants to be told the update at the entries it sent: observe()
  bool entries_vary = false;  // it does not know before a step how many entries it will send
  bool remembers = false;     // later steps depend on more than the memory and the number of the step
};

// Entries that have other indices now: those from `from` on are those from `to` on.
struct MovedEntries {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t size = 0;
};

// One whose entries another one continues, with what it has learnt.
template <class Learner>
struct Predecessor {
  const Learner* learner = nullptr;
  bool only_options_changed = false;  // it is the only one, and all its entries are where they were
  bool same_weights = false;          // of all workers: what it observed means the same as before
  std::uint64_t entries = 0;          // of the whole model that are taken over; the same on all ranks
  std::vector<MovedEntries> moved;    // where they are now; empty for a server, whose region is another one

  // The same about another learner.
  template <class Other>
  Predecessor<Other> with(const Other* other) const {
    return {other, only_options_changed, same_weights, entries, moved};
  }
};

// The choice of the entries; the rest is done for it: accumulation, taking steps back, the search for NaN and infinity,
// statistics. Its functions are called in the standard floating-point mode.
//
// THREADS: one caller at a time.
class Sparsifier {
 public:
  virtual ~Sparsifier() = default;

  // REQUIRES: the same result in every call.
  virtual SparsifierTraits traits() const { return {}; }

  // Entries that one step is expected to send; by default all, however many there are.
  virtual double expected_entries() const { return std::numeric_limits<double>::infinity(); }

  // `accumulated` is memory and gradient together, one number for each entry of the layout, all finite. Adds the
  // indices of the entries to send to `chosen`, ascending; `chosen` is empty before. Entries that are zero are not
  // sent. `step` counts from SifterContext::first_step on.
  virtual void choose(std::span<const float> accumulated, std::uint64_t step, std::vector<std::uint32_t>& chosen) = 0;

  // Reports the result of the last round: the update of all workers at the entries of `sent`, 0 where an entry is not
  // in the update (a downlink may hold it back).
  virtual void observe(const SparseVector& /*sent*/, std::span<const float> /*update_at_sent*/) {}

  // The last choose() did not count, nor what followed it (observe, set_vote): everything is to be as before it.
  // Called at most once after a choose().
  virtual void rewind() {}

  // Replaces what this one has learnt by what others have: a worker's options were changed, or its tensors were grouped
  // anew. A `learner` of another class says nothing, nor does a null pointer: use dynamic_cast. If is_voting() depends
  // on what is taken over, that must be the same on all ranks. By default nothing is taken over.
  virtual void learn_from(std::span<const Predecessor<Sparsifier>> /*others*/) {}

  // Saves or restores, with the same bits, everything that later steps depend on, except for the number of the step.
  // Throws UsageError if what it reads cannot be right.
  virtual void serialize(State& /*state*/) {}

  // Whether all ranks have to agree on a number before the next step, such as a measured threshold. True in the same
  // step on all ranks, and hardly ever. The code that connects the ranks then collects vote() from all of them and
  // calls set_vote() with the median of the votes; not at all if there are none.
  virtual bool is_voting() const noexcept { return false; }
  // This rank's number. std::nullopt if it measured none, because its region is empty or held too few entries.
  virtual std::optional<float> vote() const noexcept { return std::nullopt; }
  virtual void set_vote(float /*agreed*/) {}
};

struct SparsifierInfo {
  std::string name;     // letters, digits and underscores
  std::string summary;  // what it keeps, in about five words
  std::string example;  // a spec that works
};

// Every sparsifier: those of the library, then the registered ones.
std::vector<SparsifierInfo> sparsifiers();

// Makes a sparsifier: reads its keys from the spec, throws UsageError if a value does not suit. Keys that it does not
// read are reported as unknown.
using SparsifierFactory = std::function<std::unique_ptr<Sparsifier>(Spec& spec, const SifterContext& context)>;

// Ends when it is destroyed: then the name is free again. What was made before goes on.
class [[nodiscard]] Registration {
 public:
  Registration() = default;
  ~Registration();
  Registration(Registration&& other) noexcept;
  Registration& operator=(Registration&& other) noexcept;

 private:
  friend Registration register_sparsifier(SparsifierInfo info, SparsifierFactory factory);
  explicit Registration(std::string name) : name_(std::move(name)) {}
  std::string name_;  // empty: nothing is registered
};

// Makes info.name a sparsifier in this process. Throws UsageError if there is one of that name, or it is not a name.
// THREADS: any, at any time.
Registration register_sparsifier(SparsifierInfo info, SparsifierFactory factory);

}  // namespace sparsewire
