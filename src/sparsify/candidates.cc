#include "sparsify/candidates.h"

#include <algorithm>

#include "kernels/select.h"
#include "kernels/sweep.h"

namespace sparsewire {
namespace {

class Magnitude final : public Score {
 public:
  void rank(const std::uint32_t*, const float* values, std::size_t n, std::uint32_t* keys) const noexcept override {
    for (std::size_t i = 0; i < n; ++i) keys[i] = kernels::key_of(values[i]);
  }
};

}  // namespace

const Score& magnitude_score() noexcept {
  static const Magnitude score;
  return score;
}

void Candidates::reserve(std::size_t capacity) {
  if (capacity <= this->capacity()) return;
  capacity = std::max(
      capacity, this->capacity() + this->capacity() / 2);  // grows by half, so that the steady state allocates nothing
  values_.reserve(capacity, size_);
  keys_.reserve(capacity);
  lost_indices_.reserve(capacity + 1);
  lost_values_.reserve(capacity + 1);
  indices_.reserve(capacity, size_);  // last: capacity() must hold for all of them if one throws
}

void Candidates::append(const Candidates& others) {
  reserve(size_ + others.size_);
  std::copy_n(others.indices(), others.size_, next_index());
  std::copy_n(others.values(), others.size_, next_value());
  size_ += others.size_;
}

// Merges from the end, so that it needs no other array.
void Candidates::merge(const Candidates& others) {
  reserve(size_ + others.size_);
  std::size_t mine = size_;
  std::size_t theirs = others.size_;
  size_ += theirs;
  for (std::size_t to = size_; theirs > 0; --to) {
    const bool take_theirs = mine == 0 || indices_[mine - 1] < others.indices_[theirs - 1];
    indices_[to - 1] = take_theirs ? others.indices_[theirs - 1] : indices_[mine - 1];
    values_[to - 1] = take_theirs ? others.values_[theirs - 1] : values_[mine - 1];
    take_theirs ? --theirs : --mine;
  }
}

std::uint32_t Candidates::keep_best(std::size_t k) noexcept {
  lost_ = 0;
  if (size_ < k) return 0;
  const kernels::Kth kth = kernels::kth_largest(keys_.data(), size_, k, lost_indices_.data());
  if (size_ == k) return kth.key;
  const std::size_t before = size_;
  size_ = kernels::split(kth, k, before, indices_.data(), values_.data(), keys_.data(), lost_indices_.data(),
                         lost_values_.data());
  lost_ = before - size_;
  return kth.key;
}

}  // namespace sparsewire
