// Sifts all units of a model on the threads of the error memory, and joins what they chose.
//
// All threads share a large unit. Smaller ones, for example chunks, are dealt out: each thread has some consecutive
// ones for itself. What was chosen stays in lists of the threads until the counts of all units are known; then every
// thread copies its entries to their places in the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "sparsify/error_memory.h"
#include "sparsify/fused_sparsifier.h"

namespace sparsewire {

class UnitRunner {
 public:
  // Adds the gradient to unit number `u`, and takes out the entries that are to be sent: UnitSparsifier::sift_unit.
  using SiftUnit = std::function<std::optional<std::size_t>(std::size_t u, UnitPass& pass)>;

  // Calls sift_unit for all units but those of small tensors, which are sent whole. `out` becomes the chosen entries;
  // only its entries are changed. Returns the lowest index at which a sum is not finite; then every entry of the model
  // has made a round trip, as it has after an exception. REQUIRES: the same units in every call.
  std::optional<std::size_t> sift(const std::vector<Unit>& units, const kernels::ScaledGradient* gradient,
                                  ErrorMemory& memory, const SiftUnit& sift_unit, SparseVector& out, SiftNorms& norms);

 private:
  // What became of a unit in this step.
  struct Result {
    enum class State : std::uint8_t { not_reached, done, taken_back };
    State state = State::not_reached;
    std::size_t count = 0;  // chosen entries
    double accumulated_norm2 = 0;
    double sent_norm2 = 0;
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
    const kernels::ScaledGradient* gradient;
    ErrorMemory& memory;
    const SiftUnit& sift_unit;
  };

  bool is_shared(const Unit& unit) const noexcept { return unit.size > most_alone_; }
  void deal(const std::vector<Unit>& units, std::size_t threads);
  std::size_t sift_all(const Job& job);
  void sift_share(const Job& job, Share& share, UnitPass& pass) noexcept;
  std::optional<std::size_t> sift_one(const Job& job, std::size_t u, UnitPass& pass);
  void take_back(const Job& job) noexcept;
  std::size_t lowest_bad(const Job& job, std::size_t bad) const noexcept;
  void collect(const Job& job, SparseVector& out);
  void copy_entries(const Job& job, std::size_t thread, SparseVector& out) const noexcept;

  std::size_t most_alone_ = 0;            // entries of a unit that one thread sifts
  std::size_t alone_entries_ = 0;         // of all such units
  std::vector<Share> shares_;             // of each thread
  std::vector<Result> results_;           // of each unit
  std::vector<std::size_t> begins_;       // of the entries of each unit in the result
  std::vector<std::size_t> shared_ends_;  // in the list of each part, after each shared unit
  SparseVector small_;                    // the entries of small tensors
};

}  // namespace sparsewire
