// Units of one tile each: two launches (kernels/cuda/tile_units.cuh). Has kernels, so one file may include it.
#pragma once

#include "kernels/cuda/tile_units.cuh"
#include "sparsify/cuda/units_step.cuh"

namespace sparsewire::cuda {

class TileSift {
 public:
  explicit TileSift(UnitsStep& step) : step_(step), search_(1) {}

  // A step, from its first kernel on, that waits for the device. As DeviceMemory::take().
  std::optional<std::size_t> take(TakenEntries& taken) {
    step_.reserve_slots();
    searched_.reserve(step_.table.unit_count());
    queue();
    step_.queue_slots(step_.sent.data());
    step_.queue_norms(&step_.control.data()->failure);
    step_.wait();
    step_.is_fresh = step_.host_failure[0].bad == kNoneBad;
    if (!step_.is_fresh) {
      put_back();
      step_.restore();
      return step_.host_failure[0].bad;
    }
    step_.collect_slots(taken);
    return std::nullopt;
  }

 private:
  // The winners go to their slots.
  void queue() {
    const UnitTable& table = step_.table;
    const std::uint32_t units = table.unit_count();
    const TileUnitsArguments arguments{.memory = step_.numbers,
                                       .gradient = data_of(step_.gradient),
                                       .by = factors_of(step_.gradient),
                                       .units = units,
                                       .tiles = table.tiles(),
                                       .pieces = table.pieces(),
                                       .bars = table.bars(),
                                       .ks = table.ks(),
                                       .slots = table.slots(),
                                       .floors = table.floors(),
                                       .margins = table.margins(),
                                       .norms = step_.norms.data(),
                                       .lists = step_.lists.data(),
                                       .control = step_.control.data(),
                                       .counts = step_.sent.data(),
                                       .indices = step_.out_indices.data(),
                                       .values = step_.out_values.data(),
                                       .search = search_.data(),
                                       .searched = searched_.data()};
    const unsigned blocks = (units + kUnitWarps - 1) / kUnitWarps;
    with_type(step_.gradient,
              [&]<class T>(T*) { sift_tile_units<T><<<blocks, kUnitThreads, 0, step_.stream>>>(arguments); });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    search_tile_units<<<std::min(units, kSearchBlocks), kTileThreads, 0, step_.stream>>>(arguments);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }
  void put_back() {
    const UnitTable& table = step_.table;
    put_tile_units_back<<<blocks_for(table.unit_count()), kEntryThreads, 0, step_.stream>>>(
        step_.numbers, table.unit_count(), table.slots(), step_.sent.data(), step_.out_indices.data(),
        step_.out_values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  UnitsStep& step_;
  DeviceArray<UnitSearch> search_;
  DeviceArray<std::uint32_t> searched_;
};

}  // namespace sparsewire::cuda
