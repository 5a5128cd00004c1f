// Takes entries out of one unit of the error memory after another, by one thread or by all threads of a pool.
//
// A pass adds the gradient to a unit and moves entries into lists. Each thread has a part of the unit, a list of its
// own, and all that is done with the entries is done by the thread that has them: ranking, choosing the best, putting
// the others back. The lists of all parts, one after the other, are in the order of the indices. So every result is the
// same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "kernels/norm.h"
#include "kernels/select.h"
#include "kernels/sweep.h"
#include "sparsewire/pool.h"
#include "sparsify/candidates.h"
#include "sparsify/units.h"

namespace sparsewire {

// Threads share a unit in parts of so many entries: whole tiles, so that no tile has two threads.
inline constexpr std::size_t kGrain = 16384;
static_assert(kGrain % kernels::kTile == 0);
// A smaller unit is not worth dividing: waking the threads would cost more.
inline constexpr std::size_t kLeastShared = 65536;

// Where a null gradient stands for none: the memory has the sums. THREADS: one caller at a time.
class UnitPass {
 public:
  // Without a pool the calling thread does everything. `number` tells the passes of an ErrorMemory apart.
  explicit UnitPass(Pool* pool = nullptr, std::size_t number = 0);

  std::size_t number() const noexcept { return number_; }
  // Whose threads may be used for a unit between passes; null: none but the calling one.
  Pool* pool() const noexcept { return pool_; }

  // Before the first unit of a step: forgets what was chosen in the last one. `memory` are the numbers of all units.
  void begin(float* memory) noexcept;

  // A pass, which is the first call for a unit: adds the gradient, and takes out every entry at or above `threshold`;
  // these are the candidates. Returns the lowest index at which a sum is not finite; then every entry of the unit has
  // made a round trip (kernels/sweep.h), as it has after an exception.
  std::optional<std::size_t> take_all(const Unit& unit, const kernels::ScaledGradient* gradient,
                                      std::uint32_t threshold);

  // The same, but takes only entries that can be among the k best by `score`, and ranks them: when a list is full, its
  // thread raises its threshold, once to an estimate from a sample. `threshold` returns the highest threshold that was
  // only estimated: an entry at or above it that was not taken is worse than k entries that were.
  std::optional<std::size_t> take_best(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                                       const Score& score, std::uint32_t& threshold);

  // If take_best() did not find enough: adds the entries that it left in the memory at or above a lower `threshold` to
  // the candidates, and ranks all. If it throws, the candidates are those from before.
  void take_more(const Unit& unit, std::size_t k, const Score& score, std::uint32_t threshold);

  // The same as take_all() for the entries at `positions` (ascending numbers of entries within the unit), also those
  // that are zero.
  std::optional<std::size_t> take_at(const Unit& unit, const kernels::ScaledGradient* gradient,
                                     std::span<const std::uint32_t> positions);

  // A threshold that probably a few more than k entries reach, estimated from a sample of the unit's sums.
  std::uint32_t sample(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k);

  // The candidates: how many there are, and how many of them have a key of at least `threshold`.
  std::size_t size() const noexcept;
  std::size_t count_from(std::uint32_t threshold) noexcept;
  void rank(const Score& score) noexcept;
  // Keeps the k candidates with the largest keys, among equals those with the lower index, and puts the others back.
  // Returns the k-th key, or 0 if there are fewer than k. REQUIRES: the candidates are ranked; k >= 1.
  std::uint32_t keep_best(std::size_t k) noexcept;
  // Puts all candidates back and takes the gradient out again.
  void take_back(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept;

  // ||sums||^2 over the unit.
  double accumulated_norm2() const noexcept { return norm2_; }
  // The last call for a unit: its candidates are chosen.
  void choose() noexcept;

  // What the parts have chosen of all units since begin(), each in the order of its units.
  std::size_t parts() const noexcept { return parts_.size(); }
  const Candidates& list(std::size_t part) const noexcept { return parts_[part].found; }
  // Puts it back.
  void put_chosen_back() noexcept;

 private:
  // One thread's part of a pass: some entries of the unit, how far it got, and what it found.
  struct alignas(128) Part {
    std::size_t begin = 0;  // positions in the unit
    std::size_t end = 0;
    std::size_t position = 0;
    std::size_t failed = 0;  // entries from `position` on that the kernel has brought back after a bad sum
    kernels::TileNorms norm;
    std::uint32_t threshold = 0;
    std::uint32_t complete_from = 0;  // the highest estimated threshold; see take_best()
    bool resampled = false;           // the estimate from the entries to come was made
    bool full = false;                // stopped because the list is full
    std::size_t bad = kernels::kNoneBad;
    std::size_t count = 0;
    Candidates found;
    Candidates more;  // of take_more()
    Buffer<std::uint32_t> sampled;
  };

  void divide(const Unit& unit, std::uint32_t threshold);
  template <class Work>
  void for_each_part(Work work) noexcept;
  template <class WalkPart>
  void walk_all(Candidates Part::*list, WalkPart walk_part);
  // Calls piece(first, n) for the entries from the part's position on, at most `most` at a time, until it returns
  // false.
  template <class Piece>
  void walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept;
  void walk_limited(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k, const Score& score,
                    Part& part, Candidates& list) noexcept;
  bool accumulate_and_take(const kernels::ScaledGradient* gradient, std::size_t first, std::size_t n, Part& part,
                           Candidates& list) noexcept;
  void raise_threshold(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k, const Score& score,
                       Part& part, Candidates& list) noexcept;
  std::optional<std::size_t> finish(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept;
  void put_back(Candidates& list) noexcept;
  void put_lost_back(const Candidates& list) noexcept;

  Pool* pool_;
  std::size_t number_;
  float* memory_ = nullptr;
  bool is_shared_ = false;   // the unit, by all threads
  std::vector<Part> parts_;  // one for each thread, in the order of the entries
  std::vector<kernels::KeyList> keys_;
  std::vector<double> tiles_;  // sums of squares
  double norm2_ = 0;
};

template <class Work>
void UnitPass::for_each_part(Work work) noexcept {
  if (is_shared_) {
    pool_->run([&](int thread) { work(parts_[static_cast<std::size_t>(thread)]); });
  } else {
    for (Part& part : parts_) work(part);
  }
}

}  // namespace sparsewire
