// The error memory of a model, and every pass over it: adding a gradient and taking entries out, putting entries back,
// taking a step back.
//
// Nothing else reads or writes the memory. So it can lie on a device (device_memory.h): what the passes return, and all
// that is done with it, are the chosen entries, on the host. What touches single entries is in error_memory_entries.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/pages.h"
#include "kernels/norm.h"
#include "kernels/sweep.h"
#include "sparsewire/gradient.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"
#include "sparsify/candidates.h"
#include "sparsify/device_memory.h"
#include "sparsify/units.h"

namespace sparsewire {

// The passes take a gradient; null stands for none: they work on the numbers that are in the memory. The gradient must
// lie where the memory lies.
//
// THREADS: one caller at a time; splits the work over the pool. Results do not depend on the number of threads, nor on
// the device. On a device every function may throw, if the device fails.
class ErrorMemory {
 public:
  // `size` zeros.
  explicit ErrorMemory(std::size_t size = 0, Pool* pool = nullptr, Device device = {});

  std::size_t size() const noexcept { return size_; }
  // Where the numbers are, and moving them elsewhere; if that throws, they are where they were.
  Device device() const noexcept { return place_; }
  bool is_on_device() const noexcept { return device_ != nullptr; }
  void move_to(Device device);

  // All entries as one unit.
  const Unit& whole() const noexcept { return whole_; }

  // On a device: adds the gradient, and takes entries out of all units at once. As DeviceMemory::take().
  std::optional<std::size_t> take_from_units(std::span<const Unit> units, std::span<const UnitChoice> choices,
                                             float factor, const kernels::SecondChoice* second,
                                             const kernels::ScaledGradient* gradient, TakenEntries& taken) {
    return device_->take(units, choices, factor, second, gradient, taken);
  }

  // On the host only, as are take_best() and take_more(): adds the gradient to the unit and takes out every entry at or
  // above `threshold`. Returns the lowest index at which a sum is not finite; then the unit is as after
  // make_round_trip().
  std::optional<std::size_t> take_all(const Unit& unit, const kernels::ScaledGradient* gradient,
                                      std::uint32_t threshold, Candidates& found);

  // The same, but keeps only entries that can be among the k best by `score`: when a list is full, it raises its
  // threshold, once to an estimate from a sample. `threshold` returns the highest threshold that was only estimated: an
  // entry at or above it that is not in `found` is worse than k entries that are.
  std::optional<std::size_t> take_best(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k,
                                       const Score& score, std::uint32_t& threshold, Candidates& found);

  // If take_best() did not find enough: adds the entries that it left in the memory at or above a lower `threshold` to
  // those in `found`, and keeps the k best. REQUIRES: `found` is ranked.
  void take_more(const Unit& unit, std::size_t k, const Score& score, std::uint32_t threshold, Candidates& found);

  // Adds the gradient to the unit and takes out the entries at `positions` (ascending numbers of entries within the
  // unit), also those that are zero. On a device without a gradient, and of whole() only.
  std::optional<std::size_t> take_at(const Unit& unit, const kernels::ScaledGradient* gradient,
                                     std::span<const std::uint32_t> positions, Candidates& found);

  // Adds the gradient and moves all sums to `all`. REQUIRES: all.size() == size().
  std::optional<std::size_t> take_everything(const kernels::ScaledGradient* gradient, std::span<float> all);

  // Adds the gradient to all entries; takes nothing out.
  std::optional<std::size_t> accumulate(const kernels::ScaledGradient* gradient);

  // On the host only: a threshold that probably a few more than k entries reach, estimated from a sample of the unit's
  // sums with the gradient.
  std::uint32_t sample(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k);

  // ||sums||^2 over the unit of the last pass.
  double accumulated_norm2() const noexcept { return norm2_; }
  // ||chosen||^2, in the same order: the same bits if every non-zero entry of the unit was chosen.
  double norm2(const Unit& unit, const Candidates& chosen);
  // ||gradient||^2 over all entries; scale and decay are not applied.
  double norm2(const kernels::ScaledGradient& gradient);

  // Keeps the k candidates with the largest keys, among equals those with the lower index, and puts the others back.
  // Returns the k-th key, or 0 if there are fewer than k. REQUIRES: the candidates are ranked; k >= 1.
  // On the host only.
  std::uint32_t keep_best(Candidates& candidates, std::size_t k) noexcept;
  // Puts entries back where they were taken out.
  void put_back(Candidates& candidates);
  void put_back(const SparseVector& entries) { put_back(entries, entries.values); }
  // The same with other values.
  void put_back(const SparseVector& entries, std::span<const float> values);

  // Takes an accumulation back, after all entries were put back. On a device the unit must be whole(). REQUIRES: the
  // sums of the unit are finite.
  void restore(const Unit& unit, const kernels::ScaledGradient* gradient);
  // On the host only: accumulates and takes it back, for a unit that a failed step did not reach: kernels/sweep.h.
  void make_round_trip(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept;

  // Adds a sparse sum, and remembers the old numbers for take_back_sum(). Returns the lowest index at which the result
  // is not finite; then nothing has changed. REQUIRES: valid, of dimension size().
  std::optional<std::size_t> add_sum(const SparseVector& sum);
  // Brings back the exact numbers from before the last add_sum(). REQUIRES: all entries were put back.
  void take_back_sum(const SparseVector& sum);

  // memory += sent - received, entry by entry. REQUIRES: the differences are finite.
  void add_differences(const SparseVector& sent, std::span<const float> received);

  // memory[i] = 0 for each entry; `old` becomes what was there.
  void clear_at(const SparseVector& entries, std::vector<float>& old);
  // On a device: takes the numbers at the indices out. As DeviceMemory::take_at().
  void take_numbers(std::span<const std::uint32_t> indices, bool zeros, float* values) {
    device_->take_at(indices, zeros, values);
  }
  void write_numbers(std::span<const std::uint32_t> indices, const float* values) {
    device_->write_at(indices, values);
  }
  void clear();

  // Copies of numbers, from index `begin` on.
  void read(std::size_t begin, std::span<float> numbers) const;
  void write(std::size_t begin, std::span<const float> numbers);
  float at(std::size_t index) const;
  // All numbers where the processor can read them, until the next call. COST: on a device, a copy.
  std::span<const float> numbers() const;
  // All numbers where they are, until the next call.
  Gradient as_gradient() const;
  // Number `index` of a gradient that lies where the memory lies.
  float number_of(const kernels::ScaledGradient& gradient, std::size_t index) const;

 private:
  // One thread's part of a pass: some entries of the unit, how far it got, and what it found.
  struct Part {
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
    Candidates found;
    Buffer<std::uint32_t> sampled;
  };

  void divide(const Unit& unit, std::uint32_t threshold);
  template <class Work>
  void for_each_part(const Unit& unit, Work work);
  // Calls piece(first, n) for the entries from the part's position on, at most `most` at a time, until it returns
  // false.
  template <class Piece>
  void walk(const Unit& unit, Part& part, std::size_t most, Piece piece) noexcept;
  template <class Take>
  void walk_limited(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k, const Score& score,
                    Part& part, Take take) noexcept;
  bool accumulate_and_take(const kernels::ScaledGradient* gradient, std::size_t first, std::size_t n,
                           Part& part) noexcept;
  void raise_threshold(const Unit& unit, const kernels::ScaledGradient* gradient, std::size_t k, const Score& score,
                       Part& part) noexcept;
  void reserve_limited(const Unit& unit, std::size_t k, Candidates& found);
  std::optional<std::size_t> finish(const Unit& unit, const kernels::ScaledGradient* gradient, Candidates& found);
  void take_back(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept;
  std::uint32_t complete_from() const noexcept;
  void collect(Candidates& found);
  std::span<const std::uint32_t> indices_of(const SparseVector& entries);

  std::size_t size_;
  LongVector memory_;  // empty on a device
  Device place_;
  std::unique_ptr<DeviceMemory> device_;  // null on the host
  mutable LongVector copy_;               // of numbers on a device
  TakenEntries taken_;
  Unit whole_;  // all entries
  Pool* pool_;
  std::vector<Part> parts_;               // one for each thread, in the order of the entries
  std::vector<double> tiles_;             // sums of squares
  std::vector<double> slices_;            // the same, of chosen entries
  std::vector<std::uint32_t> positions_;  // of chosen entries in a unit that has gaps
  double norm2_ = 0;
  std::vector<float> before_sum_;  // the numbers that add_sum() changed
  Candidates nothing_;
};

}  // namespace sparsewire
