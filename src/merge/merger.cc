#include "merge/merger.h"

#include <algorithm>
#include <bit>

namespace sparsewire {

Merger::Merger(std::uint64_t dim) : sums_(dim), touched_((dim + 63) / 64) {}

void Merger::add(const SparseVector& vector, float weight) {
  if (vector.is_full()) {
    full_ = true;
    for (std::size_t i = 0; i < vector.size(); ++i) sums_[i] += weight * vector.values[i];
    return;
  }
  for (std::size_t i = 0; i < vector.size(); ++i) {
    const std::uint32_t index = vector.indices[i];
    sums_[index] += weight * vector.values[i];
    touched_[index / 64] |= std::uint64_t{1} << index % 64;
  }
}

template <class Visit>
void Merger::for_each(Visit&& visit) const {
  for (std::size_t word = 0; word < touched_.size(); ++word) {
    for (std::uint64_t bits = touched_[word]; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
}

void Merger::copy_to(SparseVector& total) const {
  total.clear(sums_.size());
  if (full_) {
    total.values.assign(sums_.begin(), sums_.end());
    return;
  }
  for_each([&](std::uint32_t index) {
    total.indices.push_back(index);
    total.values.push_back(sums_[index]);
  });
  if (total.indices.size() == total.dim) total.indices.clear();  // full: indices are not needed
}

void Merger::clear() noexcept {
  if (full_) {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
  } else {
    for_each([&](std::uint32_t index) { sums_[index] = 0; });
  }
  std::fill(touched_.begin(), touched_.end(), 0);
  full_ = false;
}

}  // namespace sparsewire
