// The sum of the squares of few entries of a tile, by one thread: a tree of which most leaves are zero.
//
// kernels/norm.h adds up the rows of a lane in order, then the lanes that differ in their highest bit, and so on down
// to the lowest, then slices likewise. With these bits the other way round, those of the slice first, entries are in
// the order of the leaves, and two of them meet at the highest bit in which they differ. What is zero adds nothing.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

inline constexpr std::uint16_t kNoPlace = 0xFFFF;  // of an entry that does not count

// The place of an entry among the leaves, and the other way round. The lowest four bits are its row.
__device__ inline std::uint16_t place_in_tree(std::uint32_t offset) {
  static_assert(kSlices == 8 && kRows == 16 && kSlice == 512);
  const std::uint32_t lane = __brev(offset % 32) >> 27U;
  const std::uint32_t slice = __brev(offset / 512) >> 29U;
  return static_cast<std::uint16_t>(slice << 9U | lane << 4U | offset / 32 % 16);
}
__device__ inline std::uint32_t offset_of_place(std::uint32_t place) {
  const std::uint32_t lane = __brev(place >> 4U & 31U) >> 27U;
  const std::uint32_t slice = __brev(place >> 9U & 7U) >> 29U;
  return slice * 512 + place % 16 * 32 + lane;
}

// Of n entries with these places, in any order; no two have the same, but kNoPlace. COST: n^2, so few.
__device__ inline double square_tree(const std::uint16_t* places, const float* values, std::uint32_t n) {
  constexpr int kDepth = 9;  // rows, and eight bits
  double sums[kDepth + 1];   // not yet added up: each meets the next one at the level of the next
  std::uint32_t levels[kDepth + 1];
  int count = 0;
  std::uint32_t last = 0;
  for (std::uint32_t turn = 0; turn < n; ++turn) {
    std::uint32_t next = kNoPlace;
    std::uint32_t which = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t place = places[i];
      if (place < next && (turn == 0 || place > last)) {
        next = place;
        which = i;
      }
    }
    if (next == kNoPlace) break;
    // 0: another row of the same lane.
    const auto level = static_cast<std::uint32_t>(32 - __clz(static_cast<int>((next ^ last) >> 4U)));
    while (count > 1 && levels[count - 1] <= level) {
      --count;
      sums[count - 1] += sums[count];
    }
    sums[count] = static_cast<double>(values[which]) * static_cast<double>(values[which]);
    levels[count++] = level;
    last = next;
  }
  if (count == 0) return 0;
  double sum = sums[--count];
  while (count > 0) sum = sums[--count] + sum;
  return sum;
}

}  // namespace sparsewire::cuda
