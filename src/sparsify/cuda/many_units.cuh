// A pass over a model of many units. Has kernels, so one file may include it.
//
// Units that are no larger than a tile take two launches (sift_tiles.cuh; their frames: sift_frames.cuh). Others take a
// few: one adds the gradient and takes out what reaches the floors of the units; if these were good guesses, the
// winners are among that (sift_candidates.cuh); if not, all is put back, and as where there is no guess, the k-th
// entries are searched in all numbers (kernels/cuda/unit_select.cuh).
#pragma once

#include "kernels/cuda/unit_select.cuh"
#include "sparsify/cuda/sift_candidates.cuh"
#include "sparsify/cuda/sift_frames.cuh"
#include "sparsify/cuda/sift_tiles.cuh"
#include "sparsify/cuda/units_step.cuh"

namespace sparsewire::cuda {

class ManyUnits {
 public:
  explicit ManyUnits(HostEntries& entries)
      : step_(entries), tiles_(step_), frames_(step_, tiles_), candidates_(step_) {}

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

  // DeviceMemory::take_for_frame(), write_frame(), bring_taken() and put_taken_back(): see sift_frames.cuh.
  std::optional<std::size_t> take_for_frame(float* numbers, std::span<const Unit> units, const UnitChoices& choices,
                                            float factor, const ScaledGradient& gradient, cudaStream_t stream,
                                            Support& support) {
    step_.begin(numbers, &gradient, stream, units);
    step_.table.set_choices(choices, factor, By::magnitude, stream);
    return frames_.take_for_frame(support);
  }
  bool write_frame(const FramePlan& plan, std::vector<std::byte>& frame, FrameNorms& norms) {
    return frames_.write_frame(plan, frame, norms);
  }
  void bring_taken(TakenEntries& taken) { frames_.bring_taken(taken); }
  void put_taken_back(cudaStream_t stream) { tiles_.put_back(stream); }
  std::size_t unit_count() const { return step_.table.unit_count(); }

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
    queue_count();
    step_.wait();
    take_counted(taken);
    return std::nullopt;
  }

  std::optional<std::size_t> take_by_search(const UnitChoices& choices, float factor, TakenEntries& taken) {
    step_.table.set_choices(choices, factor, By::magnitude, step_.stream);
    candidates_.accumulate(/*takes=*/false);
    if (step_.table.takes_any()) queue_count();
    step_.queue_norms(&step_.control.data()->failure);
    step_.wait();
    const Failure failure = step_.host_failure[0];
    step_.is_fresh = failure.outcome == kDone;
    if (failure.bad != kNoneBad) return fail(failure);
    take_counted(taken);
    return std::nullopt;
  }

  std::size_t fail(const Failure& failure) {
    step_.restore();
    return failure.bad;
  }

  // Finds the bar of each unit in all its numbers, and how many entries each tile sends.
  void queue_count() {
    UnitTable& table = step_.table;
    const cudaStream_t stream = step_.stream;
    const std::uint32_t tiles = table.tile_count();
    const std::uint32_t units = table.unit_count();
    if (table.has_k()) table.select(step_.numbers, stream);
    count_tiles<<<tiles, kTileThreads, 0, stream>>>(step_.numbers, table.tiles(), table.pieces(), table.bars(),
                                                    step_.above.data(), step_.ties.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    step_.add_up(step_.ties, step_.ties_before);
    count_sent<<<blocks_for(tiles), kEntryThreads, 0, stream>>>(table.tiles(), tiles, table.units(), table.bars(),
                                                                step_.above.data(), step_.ties.data(),
                                                                step_.ties_before.data(), step_.sent.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    step_.add_up(step_.sent, step_.sent_before);
    find_ends<<<blocks_for(units), kEntryThreads, 0, stream>>>(table.units(), units, step_.sent_before.data(),
                                                               step_.ends.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(step_.ends.data(), step_.host_ends.data(), units, stream);
    table.queue_floors(stream);
  }

  // Takes out what queue_count() has found.
  void take_counted(TakenEntries& taken) {
    if (step_.table.takes_any()) {
      take_out(taken);
    } else {
      std::fill(taken.ends.begin(), taken.ends.end(), 0);
    }
    step_.add_norms(taken);
  }
  void take_out(TakenEntries& taken) {
    UnitTable& table = step_.table;
    const std::uint32_t tiles = table.tile_count();
    const std::size_t total = step_.host_ends[table.unit_count() - 1];
    try {
      step_.out_indices.reserve(total);
      step_.out_values.reserve(total);
      step_.entries.reserve(total);
    } catch (...) {
      step_.restore();
      throw;
    }
    take_tiles<<<tiles, kTileThreads, 0, step_.stream>>>(
        step_.numbers, table.tiles(), table.pieces(), table.units(), table.bars(), step_.ties_before.data(),
        step_.sent_before.data(), step_.out_indices.data(), step_.out_values.data(), step_.sent_norms());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(step_.stream);
    download(step_.sent_norms(), step_.host_norms.data() + tiles, tiles, step_.stream);
    download(step_.out_indices.data(), step_.entries.indices.data(), total, step_.stream);
    download(step_.out_values.data(), step_.entries.values.data(), total, step_.stream);
    step_.wait();
    taken.indices = {step_.entries.indices.data(), total};
    taken.values = {step_.entries.values.data(), total};
    taken.ends.assign(step_.host_ends.data(), step_.host_ends.data() + table.unit_count());
    step_.set_kth(taken);
  }

  UnitsStep step_;
  TileSift tiles_;
  FrameSift frames_;
  CandidateSift candidates_;
};

}  // namespace sparsewire::cuda
