// Units of one tile each whose entries become a frame (kernels/cuda/frame_writer.cuh). Has kernels, so one file may
// include it.
#pragma once

#include <memory>

#include "kernels/cuda/frame_writer.cuh"
#include "sparsify/cuda/sift_tiles.cuh"

namespace sparsewire::cuda {

// As the functions of DeviceMemory of these names. REQUIRES: units of one tile, with a k; the same stream.
class FrameSift {
 public:
  FrameSift(UnitsStep& step, TileSift& tiles) : step_(step), tiles_(tiles) {}

  // From the first kernel of the step on.
  std::optional<std::size_t> take_for_frame(Support& support) {
    const UnitTable& table = step_.table;
    const std::uint32_t room = table.host_slots().back();
    tiles_.reserve();
    if (writer_ == nullptr) writer_ = std::make_unique<FrameWriter>();
    writer_->reserve(room);
    step_.begin_control();
    tiles_.queue(/*clears=*/false);
    step_.add_up(step_.sent, step_.sent_before);
    download(&step_.control.data()->failure, step_.host_failure.data(), 1, step_.stream);
    writer_->begin({.units = table.unit_count(),
                    .room = room,
                    .slots = table.slots(),
                    .before = step_.sent_before.data(),
                    .slot_indices = step_.out_indices.data(),
                    .slot_values = step_.out_values.data()},
                   step_.numbers, step_.stream);
    support = writer_->support();
    mark_counted();
    return tiles_.find_bad();
  }

  bool write_frame(const FramePlan& plan, std::vector<std::byte>& frame, FrameNorms& norms) {
    const std::size_t tiles = step_.table.tile_count();
    writer_->write(plan, step_.stream);
    download(step_.norms.data(), step_.host_norms.data(), 2 * tiles, step_.stream);
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(step_.stream));
    const double* const all = step_.host_norms.data();
    norms.accumulated_norm2.assign(all, all + tiles);
    norms.sent_norm2.assign(all + tiles, all + 2 * tiles);
    norms.rounding_loss2 = writer_->loss2();
    return writer_->finish(frame, step_.stream);
  }

  void bring_taken(TakenEntries& taken) {
    const UnitTable& table = step_.table;
    step_.queue_slots(tiles_.counts());
    step_.queue_norms(&step_.control.data()->failure);
    clear_tile_units<<<blocks_for(table.unit_count()), kEntryThreads, 0, step_.stream>>>(
        step_.numbers, table.unit_count(), table.slots(), tiles_.counts(), step_.out_indices.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    step_.wait();
    step_.collect_slots(taken);
  }

 private:
  UnitsStep& step_;
  TileSift& tiles_;
  std::unique_ptr<FrameWriter> writer_;  // null until a frame is written
};

}  // namespace sparsewire::cuda
