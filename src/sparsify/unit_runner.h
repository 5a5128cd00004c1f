// Sifts all units of a model on the threads of the error memory, and joins what they chose.
//
// All threads share a large unit. Smaller ones, for example chunks, are dealt out: each thread has some consecutive
// ones for itself. What was chosen stays in lists of the threads until the counts of all units are known; then every
// thread copies its entries to their places in the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "kernels/draw.h"
#include "sparsify/error_memory.h"
#include "sparsify/rules.h"
#include "sparsify/top_selector.h"

namespace sparsewire {

class UnitRunner {
 public:
  UnitRunner(std::size_t units, const Pool* pool);

  // Adds the gradient to all units, and takes entries out by their rules: `out` becomes what was chosen; only its
  // entries are changed. `accumulated_norm2` becomes ||sums||^2. Returns the lowest index at which a sum is not finite;
  // then every entry of the model has made a round trip, as it has after an exception. REQUIRES: the same units in
  // every call.
  std::optional<std::size_t> sift(const std::vector<Unit>& units, const Rules& rules,
                                  const kernels::ScaledGradient* gradient, ErrorMemory& memory, SparseVector& out,
                                  double& accumulated_norm2);

  // The k-th best key of unit `u` in the last step whose rule was `best`, or 0 if it had fewer entries than k.
  std::uint32_t kth(std::size_t u) const noexcept { return top_.kth(u); }
  // The positions that a rule draws in a unit. Valid until the next call for the same drawer; number 0 is there always.
  std::span<const std::uint32_t> draw(const DrawsFrom& from, std::size_t u, const Unit& unit, std::size_t n,
                                      std::size_t drawer = 0, Pool* pool = nullptr);

 private:
  // What became of a unit in this step.
  struct Result {
    enum class State : std::uint8_t { not_reached, done, taken_back };
    State state = State::not_reached;
    std::size_t count = 0;  // chosen entries
    double accumulated_norm2 = 0;
  };
  // The units that a thread has for itself: from number `begin` to `end`, without those that all threads share.
  struct Share {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t bad = kernels::kNoneBad;
    std::exception_ptr thrown;
  };
  struct Job {
    const std::vector<Unit>& units;
    const Rules& rules;
    const Score& score;
    const kernels::ScaledGradient* gradient;
    ErrorMemory& memory;
  };

  bool is_shared(const Unit& unit) const noexcept { return unit.size > most_alone_; }
  void deal(const std::vector<Unit>& units, std::size_t threads);
  std::size_t sift_all(const Job& job);
  void sift_share(const Job& job, Share& share, UnitPass& pass) noexcept;
  std::optional<std::size_t> sift_one(const Job& job, std::size_t u, UnitPass& pass);
  std::optional<std::size_t> take(const Job& job, std::size_t u, UnitPass& pass);
  void take_back(const Job& job) noexcept;
  std::size_t lowest_bad(const Job& job, std::size_t bad) const noexcept;
  void collect(const Job& job, SparseVector& out);
  void copy_entries(const Job& job, std::size_t thread, SparseVector& out) const noexcept;

  TopSelector top_;
  std::vector<kernels::Drawer> drawers_;  // for each pass of the memory: several threads may draw at the same time
  std::size_t most_alone_ = 0;            // entries of a unit that one thread sifts
  std::size_t alone_entries_ = 0;         // of all such units
  std::vector<Share> shares_;             // of each thread
  std::vector<Result> results_;           // of each unit
  std::vector<std::size_t> begins_;       // of the entries of each unit in the result
  std::vector<std::size_t> shared_ends_;  // in the list of each part, after each shared unit
  SparseVector small_;                    // the entries of small tensors
};

}  // namespace sparsewire
