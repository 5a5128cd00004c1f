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
  const std::size_t used = chosen_ + size_;
  const std::size_t room = indices_.capacity();
  const std::size_t all = std::max(chosen_ + capacity, room + room / 2);  // by half: the steady state allocates nothing
  values_.reserve(all, used);
  keys_.reserve(all);
  lost_indices_.reserve(all);
  lost_values_.reserve(all);
  indices_.reserve(all, used);  // last: capacity() must hold for all of them if one throws
}

// Merges from the end, so that it needs no other array.
void Candidates::merge(const Candidates& others) {
  reserve(size_ + others.size_);
  std::uint32_t* const indices = indices_.data() + chosen_;
  float* const values = values_.data() + chosen_;
  std::size_t mine = size_;
  std::size_t theirs = others.size_;
  size_ += theirs;
  for (std::size_t to = size_; theirs > 0; --to) {
    const bool take_theirs = mine == 0 || indices[mine - 1] < others.indices()[theirs - 1];
    indices[to - 1] = take_theirs ? others.indices()[theirs - 1] : indices[mine - 1];
    values[to - 1] = take_theirs ? others.values()[theirs - 1] : values[mine - 1];
    take_theirs ? --theirs : --mine;
  }
}

std::uint32_t Candidates::keep_best(std::size_t k) noexcept {
  lost_ = 0;
  if (size_ < k) return 0;
  const kernels::Kth kth = kernels::kth_largest(keys_.data(), size_, k, scratch());
  if (size_ > k) keep_best(kth.key, k - kth.above);
  return kth.key;
}

void Candidates::keep_best(std::uint32_t kth, std::size_t equals) noexcept {
  const std::size_t before = size_;
  size_ = kernels::split(kth, equals, before, indices_.data() + chosen_, values_.data() + chosen_, keys_.data(),
                         lost_indices_.data(), lost_values_.data());
  lost_ = before - size_;
}

}  // namespace sparsewire
