// Units of any size, whose k-th entries are searched in all numbers (kernels/cuda/unit_select.cuh): where there is no guess
// of them, or it was wrong. Has kernels, so one file may include it.
#pragma once

#include "kernels/cuda/unit_select.cuh"
#include "sparsify/cuda/units_step.cuh"

namespace sparsewire::cuda {

// After the gradient was added.
class SearchSift {
 public:
  explicit SearchSift(UnitsStep& step) : step_(step) {}

  // Finds the bar of each unit in all its numbers, and how many entries each tile sends.
  void queue() {
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

  // Takes out what queue() has found.
  void take(TakenEntries& taken) {
    if (step_.table.takes_any()) {
      take_out(taken);
    } else {
      std::fill(taken.ends.begin(), taken.ends.end(), 0);
    }
    step_.add_norms(taken);
  }

 private:
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
        step_.sent_before.data(), step_.out_indices.data(), step_.out_values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(step_.stream);
    download(step_.out_indices.data(), step_.entries.indices.data(), total, step_.stream);
    download(step_.out_values.data(), step_.entries.values.data(), total, step_.stream);
    step_.wait();
    taken.indices = {step_.entries.indices.data(), total};
    taken.values = {step_.entries.values.data(), total};
    taken.ends.assign(step_.host_ends.data(), step_.host_ends.data() + table.unit_count());
    step_.set_kth(taken);
  }

  UnitsStep& step_;
};

}  // namespace sparsewire::cuda
