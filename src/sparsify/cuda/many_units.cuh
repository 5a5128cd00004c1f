// A pass over a model of many units. Has kernels, so one file may include it.
//
// Units that are no larger than a tile take two launches (sift_tiles.cuh). Others take a few: one adds the gradient and
// takes out what reaches the floors of the units; if these were good guesses, the winners are among that
// (sift_candidates.cuh); if not, all is put back, and as where there is no guess, the k-th entries are searched in all
// numbers (sift_search.cuh).
#pragma once

#include "sparsify/cuda/sift_candidates.cuh"
#include "sparsify/cuda/sift_search.cuh"
#include "sparsify/cuda/sift_tiles.cuh"
#include "sparsify/cuda/units_step.cuh"

namespace sparsewire::cuda {

class ManyUnits {
 public:
  explicit ManyUnits(HostEntries& entries) : step_(entries), tiles_(step_), candidates_(step_), search_(step_) {}

  // DeviceMemory::take(). Waits for the device. REQUIRES: nothing is queued that uses the same arrays.
  std::optional<std::size_t> take(float* numbers, std::span<const Unit> units, const UnitChoices& choices, float factor,
                                  const kernels::SecondChoice* second, const ScaledGradient* gradient,
                                  cudaStream_t stream, TakenEntries& taken) {
    // Scores are at most the magnitudes, so the best are candidates; but not if magnitudes have a factor.
    const By by = second == nullptr ? By::magnitude : second->draw ? By::draw : factor == 1 ? By::score : By::magnitude;
    step_.begin(numbers, gradient, stream, units);
    step_.table.set_choices(choices, factor, by, stream);
    step_.begin_control();
    if (step_.table.is_one_tile_each() && by == By::magnitude) return tiles_.take(taken);
    return step_.table.has_floors() ? take_candidates(choices, factor, by, second, taken)
                                    : take_by_search(choices, factor, taken);
  }

 private:
  std::optional<std::size_t> take_candidates(const UnitChoices& choices, float factor, By by,
                                             const kernels::SecondChoice* second, TakenEntries& taken) {
    candidates_.reserve(by, second);
    candidates_.accumulate(/*takes=*/true);
    candidates_.queue(by, second);
    step_.queue_norms(&step_.control.data()->last_failure);
    step_.wait();
    const Failure failure = step_.host_failure[0];
    step_.is_fresh = true;
    if (failure.outcome != kDone) candidates_.put_back();
    if (failure.bad != kNoneBad) return fail(failure);
    if (failure.outcome == kDone) {
      step_.collect_slots(taken);
      taken.chosen_twice = by != By::magnitude;
      return std::nullopt;
    }
    step_.table.set_choices(choices, factor, By::magnitude, step_.stream);  // the guesses were wrong
    search_.queue();
    step_.wait();
    search_.take(taken);
    return std::nullopt;
  }

  std::optional<std::size_t> take_by_search(const UnitChoices& choices, float factor, TakenEntries& taken) {
    step_.table.set_choices(choices, factor, By::magnitude, step_.stream);
    candidates_.accumulate(/*takes=*/false);
    if (step_.table.takes_any()) search_.queue();
    step_.queue_norms(&step_.control.data()->failure);
    step_.wait();
    const Failure failure = step_.host_failure[0];
    step_.is_fresh = failure.outcome == kDone;
    if (failure.bad != kNoneBad) return fail(failure);
    search_.take(taken);
    return std::nullopt;
  }

  std::size_t fail(const Failure& failure) {
    step_.restore();
    return failure.bad;
  }

  UnitsStep step_;
  TileSift tiles_;
  CandidateSift candidates_;
  SearchSift search_;
};

}  // namespace sparsewire::cuda
