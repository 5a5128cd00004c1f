// The steps over one unit: which kernels are launched, and what follows if a guess was wrong. Below it are
// unit_search.cuh, unit_launch.cuh and unit_arrays.cuh.
#include <algorithm>

#include "kernels/cuda/unit_memory.h"
#include "kernels/cuda/unit_search.cuh"

namespace sparsewire::cuda {

struct UnitMemory::Parts : UnitSearches {
  using UnitSearches::UnitSearches;

  // Makes room for `room` entries, and sees to it that there is a guess of the k-th.
  void begin_top(const ScaledGradient* gradient, std::size_t k, std::size_t room, void* on) {
    stream = static_cast<cudaStream_t>(on);
    has_added = false;
    if (room > most) {
      SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
      reserve(room);
    }
    if (!has_guess) estimate_threshold(gradient, k);
    has_guess = true;
  }
};

UnitMemory::UnitMemory(std::size_t size, std::size_t most) : UnitMemory(nullptr, size, most) {}
UnitMemory::UnitMemory(float* numbers, std::size_t size, std::size_t most)
    : parts_(std::make_unique<Parts>(numbers, size, most)) {}
UnitMemory::~UnitMemory() = default;

void UnitMemory::queue_top(const ScaledGradient* gradient, std::size_t k, void* stream) {
  Parts& p = *parts_;
  p.begin_top(gradient, k, k, stream);
  p.queue(gradient, k, 0);
}

std::optional<Sent> UnitMemory::top(const ScaledGradient* gradient, std::size_t k, std::size_t second_k,
                                    const kernels::SecondChoice& second, void* stream) {
  Parts& p = *parts_;
  // Of those that are chosen by scores the first choice has more, and a guess of its own.
  const std::size_t guessed = second.draw ? k : second_k;
  p.begin_top(gradient, guessed, k, stream);
  if (!second.draw) p.last_round.reserve(second.last_round.size());
  p.queue(gradient, guessed, 0, &second, second_k);
  const StepResult result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  p.put_all_back();
  p.has_guess = false;
  return std::nullopt;
}

void UnitMemory::queue_above(const ScaledGradient* gradient, std::uint32_t threshold, void* stream) {
  parts_->stream = static_cast<cudaStream_t>(stream);
  parts_->has_added = false;
  parts_->queue(gradient, 0, threshold);
}

std::optional<Sent> UnitMemory::wait() {
  const StepResult result = parts_->wait();
  if (result.outcome != kDone) return std::nullopt;
  return parts_->sent(result);
}

Sent UnitMemory::top(const ScaledGradient* gradient, std::size_t k, void* stream) {
  Parts& p = *parts_;
  queue_top(gradient, k, stream);
  StepResult result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  // The guess was wrong. A sample of the sums, which are in the memory now, gives a better one.
  p.put_all_back();
  p.estimate_threshold(nullptr, k);
  p.queue_second(k);
  result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  p.put_all_back();
  return p.count_and_take(k);
}

Sent UnitMemory::above(const ScaledGradient* gradient, std::uint32_t threshold, void* stream) {
  Parts& p = *parts_;
  queue_above(gradient, threshold, stream);
  StepResult result = p.wait();
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  while (result.outcome != kDone) {  // more than there is room for
    p.put_all_back();
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(p.stream));
    p.reserve(std::min(p.size, std::max<std::size_t>(2 * p.most, result.found)));
    p.queue(nullptr, 0, threshold);
    result = p.wait();
  }
  return p.sent(result);
}

bool UnitMemory::has_added() const noexcept { return parts_->has_added; }
void UnitMemory::forget_guess() { parts_->has_guess = false; }
float* UnitMemory::data() noexcept { return parts_->memory; }
std::size_t UnitMemory::size() const noexcept { return parts_->size; }

}  // namespace sparsewire::cuda
