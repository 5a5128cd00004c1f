// The checksum of a frame on the device.
#pragma once

#include "kernels/cuda/checksum.cuh"
#include "kernels/cuda/frame_bits.cuh"

namespace sparsewire::cuda {

// Writes the checksum behind the frame; whole words behind that must be 0. Any number of blocks; one that is not the
// last leaves its work in the layout.
static __global__ void __launch_bounds__(kChecksumThreads)
    add_checksum(std::uint32_t* frame, FrameLayout* layout, const __grid_constant__ PowersOfX powers,
                 const __grid_constant__ PieceShifts shifts) {
  if (layout->has_failed != 0) return;
  const std::uint64_t size = layout->bytes - 4;  // without the checksum
  const std::uint32_t all = checksum_of_block(frame, size, ~0U, powers, shifts);
  if (threadIdx.x != 0) return;
  if (all != 0) atomicXor(&layout->checksum, all);
  __threadfence();
  if (atomicAdd(&layout->blocks_done, 1) != gridDim.x - 1) return;
  put_bytes(frame, size, ~atomicXor(&layout->checksum, 0), 4);
}

}  // namespace sparsewire::cuda
