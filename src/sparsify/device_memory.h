// The numbers of an ErrorMemory on a device, and the passes over them there.
//
// Only chosen entries cross the bus, and a pass serves all units of a model at once: a launch for each unit would take
// longer than the work. Every result has the bits that the processor gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/second_choice.h"
#include "kernels/sweep.h"
#include "sparsewire/gradient.h"
#include "sparsewire/sparse_vector.h"
#include "sparsify/unit_choices.h"
#include "sparsify/units.h"

namespace sparsewire {

// What was taken out of all units, one unit after the other, indices ascending within each.
struct TakenEntries {
  std::span<const std::uint32_t> indices;  // on the host, until the next take()
  std::span<const float> values;
  // For each unit:
  std::vector<std::size_t> ends;          // of its entries
  std::vector<double> accumulated_norm2;  // ||sums||^2
  // If one unit has a k: the key of its k-th entry, or 0 if there were fewer.
  std::uint32_t kth = 0;
  bool chosen_twice = false;  // the entries are those of the second choice, in all units
};

// What take() throws if the velocity that it is to add may not be finite. Then nothing has happened.
class MayOverflow final : public std::exception {
 public:
  const char* what() const noexcept override { return "a velocity may not be finite"; }
};

// Where a null gradient stands for none. THREADS: one caller at a time. Work is queued on the stream of the gradient,
// or on that of the last one. Throws UsageError if a gradient is not in the memory of the device, or std::runtime_error
// if the device fails.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Adds the gradient, and takes entries out of each unit. Larger numbers |factor * sum| are chosen first, as floats;
  // of equal ones that with the lower index. Returns the lowest index at which a sum is not finite; then every entry
  // has made a round trip (kernels/sweep.h). If there is a second choice, the device may take the entries of that
  // instead: TakenEntries::chosen_twice. What is to be added to the gradient first (ScaledGradient::first_add) is
  // clipped and added, unless that may give a number that is not finite: then it throws MayOverflow. After every
  // exception, FirstAdd::is_added says whether it was added. What the host does for each unit before the pass, it does
  // only if the choices have another ChoicesKey than in the last call. REQUIRES: a choice for each unit; 0 <= factor <=
  // 1; the same `units`, at the same address, and the same `choices` in every call with so many units; second_k <= k.
  virtual std::optional<std::size_t> take(std::span<const Unit> units, const UnitChoices& choices, float factor,
                                          const kernels::SecondChoice* second, const kernels::ScaledGradient* gradient,
                                          TakenEntries& taken) = 0;

  // Moves all numbers to another array on the device, and returns where that is. Until the next call that takes
  // something, put_all_back() brings them back.
  virtual Gradient take_all() = 0;
  virtual void put_all_back() = 0;

  // Takes the accumulation back: kernels::restore() for all entries.
  virtual void restore(const kernels::ScaledGradient& gradient) = 0;

  // ||gradient||^2 as ErrorMemory has it.
  virtual double norm2(const kernels::ScaledGradient& gradient) = 0;
  virtual float number_of(const kernels::ScaledGradient& gradient, std::size_t index) = 0;

  // The following take ascending indices, on the host.
  // Sets values[i] to the number at indices[i], and the number there to 0. A zero is left as it is, unless `zeros`.
  virtual void take_at(std::span<const std::uint32_t> indices, bool zeros, float* values) = 0;
  virtual void write_at(std::span<const std::uint32_t> indices, const float* values) = 0;
  virtual void add_at(std::span<const std::uint32_t> indices, const float* values) = 0;
  // The same, and keeps the numbers from before on the device. Returns the lowest index at which the result is not
  // finite; then nothing has changed.
  virtual std::optional<std::size_t> add_sum(std::span<const std::uint32_t> indices, const float* values) = 0;
  // Brings back what was there before the last add_sum(). REQUIRES: the same indices.
  virtual void take_back_sum(std::span<const std::uint32_t> indices) = 0;

  virtual void clear() = 0;
  virtual void read(std::size_t begin, std::span<float> numbers) const = 0;
  virtual void write(std::size_t begin, std::span<const float> numbers) = 0;

  // All numbers where they are, in the order of the stream.
  virtual Gradient numbers() const = 0;
};

// What is done to arrays of the caller that are on a device, on the stream of the array. THREADS: one caller at a time.
class DeviceArrays {
 public:
  virtual ~DeviceArrays() = default;
  // to[i] = factor * entry, rounded to the type of the array; 0 where there is no entry.
  virtual void write(const SparseVector& entries, float factor, const WritableNumbers& to) = 0;
  // from[i] -= factor * entry.
  virtual void subtract(const SparseVector& entries, float factor, const WritableNumbers& from) = 0;
  // Copies an array to the host, bit for bit.
  virtual void read(const Gradient& from, void* to) = 0;
};

// `size` zeros on the device. Throw UsageError if this build has no code for it, or there is no such device. Defined in
// cuda/, or in cuda/no_cuda.cc.
std::unique_ptr<DeviceMemory> make_device_memory(Device device, std::size_t size);
std::unique_ptr<DeviceArrays> make_device_arrays(Device device);

}  // namespace sparsewire
