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

#include "kernels/sweep.h"
#include "sparsewire/gradient.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"
#include "sparsewire/support/pages.h"
#include "sparsify/device_memory.h"
#include "sparsify/unit_pass.h"
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
  std::optional<std::size_t> take_from_units(std::span<const Unit> units, const UnitChoices& choices, float factor,
                                             const kernels::SecondChoice* second,
                                             const kernels::ScaledGradient* gradient, TakenEntries& taken) {
    return device_->take(units, choices, factor, second, gradient, taken);
  }

  // On a device: as in DeviceMemory.
  Gradient take_all() { return device_->take_all(); }
  void put_all_back() { device_->put_all_back(); }

  // On the host only: what takes entries out, unit by unit. together() is for a unit that all threads share, alone(t)
  // for one that thread number t has for itself; these can work on different units at the same time.
  UnitPass& together() noexcept { return together_; }
  UnitPass& alone(std::size_t thread) noexcept { return alone_[thread]; }
  std::size_t threads() const noexcept { return alone_.size(); }
  Pool* pool() const noexcept { return pool_; }
  // Before the first unit of a step.
  void begin_units() noexcept;

  // Adds the gradient and moves all sums to `all`. REQUIRES: all.size() == size().
  std::optional<std::size_t> take_everything(const kernels::ScaledGradient* gradient, std::span<float> all);

  // Adds the gradient to all entries; takes nothing out.
  std::optional<std::size_t> accumulate(const kernels::ScaledGradient* gradient);

  // ||sums||^2 after accumulate() or take_everything().
  double accumulated_norm2() const noexcept { return norm2_; }
  // ||numbers||^2, in the order of kernels/norm.h, where they lie: of a gradient, whose scale and decay are not
  // applied, or of entries. Allocates nothing for those on the host. REQUIRES: no more than size().
  double norm2(const kernels::ScaledGradient& numbers);

  // Puts entries back where they were taken out.
  void put_back(const SparseVector& entries) { put_back(entries, entries.values); }
  // The same with other values.
  void put_back(const SparseVector& entries, std::span<const float> values);

  // Takes an accumulation back, after all entries were put back. REQUIRES: the sums are finite.
  void restore(const kernels::ScaledGradient* gradient);
  // On the host only: the same for a unit; and for one that a failed step did not reach: kernels/sweep.h.
  void restore(const Unit& unit, const kernels::ScaledGradient* gradient) noexcept;
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
  std::span<const std::uint32_t> indices_of(const SparseVector& entries);

  std::size_t size_;
  LongVector memory_;  // empty on a device
  Device place_;
  std::unique_ptr<DeviceMemory> device_;  // null on the host
  mutable LongVector copy_;               // of numbers on a device
  TakenEntries taken_;
  Unit whole_;           // all entries
  UnitChoices nothing_;  // of whole_
  Pool* pool_;
  UnitPass together_;
  std::vector<UnitPass> alone_;           // one for each thread
  std::vector<double> tiles_;             // sums of squares
  std::vector<std::size_t> bad_;          // of each thread
  std::vector<std::uint32_t> positions_;  // of the entries of a full vector
  double norm2_ = 0;
  std::vector<float> before_sum_;  // the numbers that add_sum() changed
};

}  // namespace sparsewire
