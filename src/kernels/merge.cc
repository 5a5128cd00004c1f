// Plain loops, compiled for each SIMD level (see golomb.cc): counting bits needs more than the oldest processors have.
#include "kernels/merge.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/merge.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};  // above all indices

std::uint32_t lowest_index(std::span<const Addend> addends) {
  std::uint32_t lowest = kNone;
  for (const Addend& addend : addends) {
    if (addend.next < addend.end) lowest = std::min(lowest, addend.indices[addend.next]);
  }
  return lowest;
}

// The word of an index. A compiler that is told the number of the word shifts twice.
[[gnu::always_inline]] inline MergeWindow::Word& word_of(MergeWindow::Word* words, std::uint32_t index) {
  static_assert(sizeof(MergeWindow::Word) == 16);
  return *reinterpret_cast<MergeWindow::Word*>(reinterpret_cast<std::byte*>(words) +
                                               (index / 4 & (MergeWindow::kSize - 64) / 4));
}

// Marks the entries up to the index `last`; returns the number of the first one after it.
HWY_NOINLINE std::size_t mark(const Addend& addend, std::uint32_t last, MergeWindow::Word* words) {
  const std::uint32_t* const indices = addend.indices;
  const std::size_t end = addend.end;
  std::size_t i = addend.next;
  if (i == end) return end;
  const auto mark_one = [&](std::uint32_t index) { word_of(words, index).touched |= std::uint64_t{1} << index % 64; };
  if (indices[end - 1] <= last) {
    for (; i < end; ++i) mark_one(indices[i]);
  } else {
    for (; indices[i] <= last; ++i) mark_one(indices[i]);  // ends before the last entry
  }
  return i;
}

// Counts the entries before each word that has some; returns how many there are in all.
std::uint32_t count(MergeWindow& window) {
  std::uint32_t before = ~std::uint32_t{0};
  for (auto word = window.words.begin(); word != window.words.end(); word += 4) {
    if ((word[0].touched | word[1].touched | word[2].touched | word[3].touched) == 0) continue;
    for (std::size_t i = 0; i < 4; ++i) {
      word[i].before = before;
      before += static_cast<std::uint32_t>(std::popcount(word[i].touched));
    }
  }
  return before + 1;
}

// Adds the entries before `stop`.
HWY_NOINLINE void add(const Addend& addend, MergeWindow::Word* words, std::uint32_t* HWY_RESTRICT indices,
                      float* HWY_RESTRICT values) {
  const std::uint32_t* const from = addend.indices;
  const float* const numbers = addend.values;
  const std::size_t stop = addend.stop;
  const float weight = addend.weight;
  for (std::size_t i = addend.next; i < stop; ++i) {
    const std::uint32_t index = from[i];
    const MergeWindow::Word& word = word_of(words, index);
    // The bits up to this one, which is set.
    const auto up_to_here = static_cast<std::uint32_t>(std::popcount(word.touched << (~index % 64)));
    const std::uint32_t place = word.before + up_to_here;
    indices[place] = index;
    values[place] += weight * numbers[i];
  }
}

std::size_t sum_sorted(std::span<Addend> addends, MergeWindow& window, std::uint32_t* indices, float* values) {
  MergeWindow::Word* const words = window.words.data();
  std::size_t size = 0;
  for (;;) {
    const std::uint32_t lowest = lowest_index(addends);
    if (lowest == kNone) return size;
    const std::uint32_t last = lowest | (MergeWindow::kSize - 1);
    std::memset(words, 0, sizeof window.words);
    for (Addend& addend : addends) addend.stop = mark(addend, last, words);
    const std::uint32_t in_window = count(window);
    std::fill_n(values + size, in_window, 0.0F);
    for (Addend& addend : addends) {
      add(addend, words, indices + size, values + size);
      addend.next = addend.stop;
    }
    size += in_window;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(sum_sorted);
}  // namespace

std::size_t sum_sorted(std::span<Addend> addends, MergeWindow& window, std::uint32_t* indices, float* values) noexcept {
  return HWY_DYNAMIC_DISPATCH(sum_sorted)(addends, window, indices, values);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
