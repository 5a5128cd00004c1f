// What a UnitPass does with the candidates of its parts: chooses the best of all of them.
#include <algorithm>

#include "sparsify/unit_pass.h"

namespace sparsewire {

std::size_t UnitPass::size() const noexcept {
  std::size_t sum = 0;
  for (const Part& part : parts_) sum += part.found.size();
  return sum;
}

std::size_t UnitPass::count_from(std::uint32_t threshold) noexcept {
  for_each_part([&](Part& part) {
    const std::uint32_t* const keys = part.found.keys();
    part.count = static_cast<std::size_t>(
        std::count_if(keys, keys + part.found.size(), [&](std::uint32_t key) { return key >= threshold; }));
  });
  std::size_t sum = 0;
  for (const Part& part : parts_) sum += part.count;
  return sum;
}

void UnitPass::rank(const Score& score) noexcept {
  for_each_part([&](Part& part) { part.found.rank(score); });
}

std::uint32_t UnitPass::keep_best(std::size_t k) noexcept {
  const std::size_t all = size();
  if (all < k) return 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Candidates& found = parts_[p].found;
    keys_[p].keys = found.keys();
    keys_[p].n = found.size();
    keys_[p].scratch = found.scratch();
  }
  const kernels::Kth kth = kernels::kth_largest(keys_, k, is_shared_ ? pool_ : nullptr);
  if (all == k) return kth.key;
  std::size_t equals = k - kth.above;  // to be kept: the first ones
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    parts_[p].count = std::min(equals, keys_[p].equal);
    equals -= parts_[p].count;
  }
  for_each_part([&](Part& part) {
    part.found.keep_best(kth.key, part.count);
    put_lost_back(part.found);
  });
  return kth.key;
}

void UnitPass::put_lost_back(const Candidates& list) noexcept {
  for (std::size_t i = 0; i < list.lost_count(); ++i) memory_[list.lost_indices()[i]] = list.lost_values()[i];
}

void UnitPass::put_back(Candidates& list) noexcept {
  for (std::size_t i = 0; i < list.size(); ++i) memory_[list.indices()[i]] = list.values()[i];
  list.clear();
}

void UnitPass::put_chosen_back() noexcept {
  for (Part& part : parts_) {
    const Candidates& list = part.found;
    for (std::size_t i = 0; i < list.chosen_count(); ++i) memory_[list.chosen_indices()[i]] = list.chosen_values()[i];
    part.found.clear_all();
  }
}

void UnitPass::choose() noexcept {
  for (Part& part : parts_) part.found.choose();
}

}  // namespace sparsewire
