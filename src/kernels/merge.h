// The sum of several lists of entries that are sorted by index: the loop of merge/merger.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire::kernels {

// A sorted list, or a part of one, of which the entries [next, end) are to be added.
struct Addend {
  const std::uint32_t* indices;
  const float* values;
  float weight;
  std::size_t next;
  std::size_t end;
  std::size_t stop = 0;  // the first entry after the window; used by sum_sorted() only
};

// What sum_sorted() knows about a window of the model: for each 64 entries which of them some list has, and how many
// entries of the window come before them, less 1. 16 kB, so that it stays in the first-level cache.
struct MergeWindow {
  static constexpr std::uint32_t kSize = 65536;  // entries of the model

  struct Word {
    std::uint64_t touched;
    std::uint32_t before;
  };
  alignas(64) std::array<Word, kSize / 64> words;
};

// Writes the sum over all addends, each entry beginning with +0, in the order of the addends; returns the number of
// entries. Changes `next` of the addends. REQUIRES: in each addend indices ascend and are below 2^32 - 1; room for all
// entries of the result.
//
// Window by window: marks the entries that there are; counts them, so that each has its place in the result; and adds
// every entry at its place. No branch depends on which entries there are.
std::size_t sum_sorted(std::span<Addend> addends, MergeWindow& window, std::uint32_t* indices, float* values) noexcept;

}  // namespace sparsewire::kernels
