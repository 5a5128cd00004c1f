// The error memory of one unit on a GPU, and the steps over it: adding a gradient, and taking out the k largest sums or
// those above a threshold. The same bits as ErrorMemory and its sparsifiers give on the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/second_choice.h"
#include "kernels/sweep.h"

namespace sparsewire::cuda {

// What a step sent. The arrays are in device memory, in ascending order of the indices, until the next step.
struct Sent {
  const std::uint32_t* indices = nullptr;
  const float* values = nullptr;
  std::size_t count = 0;
  std::uint32_t kth = 0;  // of top(): the k-th key; 0 if no entry had to be left out
  double accumulated_norm2 = 0;
  std::optional<std::size_t> bad = {};  // the lowest index with a sum that is not finite; then nothing was sent
  bool may_overflow = false;            // what is added first may give a velocity that is not finite; nothing was done
};

// THREADS: one caller at a time. All work is queued on the given stream. A step returns when its count is
// known; it waits for the device to that point.
class UnitMemory {
 public:
  // `size` zeros, and room for `most` entries in a step. Throws CudaError.
  UnitMemory(std::size_t size, std::size_t most);
  // The same with numbers that the caller has, in device memory.
  UnitMemory(float* numbers, std::size_t size, std::size_t most);
  ~UnitMemory();
  UnitMemory(const UnitMemory&) = delete;
  UnitMemory& operator=(const UnitMemory&) = delete;

  // The gradient is in device memory; null: there is none. Takes the k largest by magnitude; of equal ones those with
  // the lower index; none that is zero. Where there is not enough room, it allocates more. REQUIRES: 1 <= k <= size.
  Sent top(const kernels::ScaledGradient* gradient, std::size_t k, void* stream);
  // The same by a second choice: second_k of the k largest, or of all. Returns nothing if that is not possible here:
  // then it has added the gradient, and taken nothing. REQUIRES: 1 <= second_k <= k.
  std::optional<Sent> top(const kernels::ScaledGradient* gradient, std::size_t k, std::size_t second_k,
                          const kernels::SecondChoice& second, void* stream);
  // Takes all whose key is at least `threshold`.
  Sent above(const kernels::ScaledGradient* gradient, std::uint32_t threshold, void* stream);

  // On the stream of the gradient.
  Sent top(const kernels::ScaledGradient& gradient, std::size_t k) { return top(&gradient, k, gradient.stream); }
  Sent above(const kernels::ScaledGradient& gradient, std::uint32_t threshold) {
    return above(&gradient, threshold, gradient.stream);
  }

  // Queues a step of top() and does not wait for it; for measurements. wait() returns what it sent, or nothing if it
  // has to be finished by another way, which it then does not.
  void queue_top(const kernels::ScaledGradient* gradient, std::size_t k, void* stream);
  void queue_top(const kernels::ScaledGradient& gradient, std::size_t k) { queue_top(&gradient, k, gradient.stream); }
  void queue_above(const kernels::ScaledGradient* gradient, std::uint32_t threshold, void* stream);
  void queue_above(const kernels::ScaledGradient& gradient, std::uint32_t threshold) {
    queue_above(&gradient, threshold, gradient.stream);
  }
  std::optional<Sent> wait();

  // Whether the last step, if it threw, had added its gradient.
  bool has_added() const noexcept;

  // The next top() has no guess to begin with.
  void forget_guess();

  float* data() noexcept;  // in device memory
  std::size_t size() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sparsewire::cuda
