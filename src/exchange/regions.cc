#include "exchange/regions.h"

namespace sparsewire {
namespace {

constexpr std::uint32_t kBlock = 16;

// The finaliser of MurmurHash3: every bit of the number reaches every bit of the result.
std::uint32_t mix(std::uint32_t number) noexcept {
  number = (number ^ number >> 16) * 0x85EBCA6BU;
  number = (number ^ number >> 13) * 0xC2B2AE35U;
  return number ^ number >> 16;
}

}  // namespace

Regions::Regions(std::uint64_t dim, int ranks) : dim_(dim), ranks_(static_cast<std::uint32_t>(ranks)) {}

std::uint32_t Regions::rotation(std::uint32_t group) const noexcept { return mix(group) % ranks_; }

std::uint64_t Regions::size(int region) const noexcept {
  if (dim_ == 0) return 0;
  const std::uint64_t last_block = (dim_ - 1) / kBlock;
  const std::uint64_t last_group = last_block / ranks_;  // all groups before it are complete
  const std::uint32_t slot =
      (static_cast<std::uint32_t>(region) + ranks_ - rotation(static_cast<std::uint32_t>(last_group))) % ranks_;
  const std::uint64_t block = last_group * ranks_ + slot;
  const std::uint64_t in_last = block < last_block ? kBlock : block == last_block ? dim_ - last_block * kBlock : 0;
  return last_group * kBlock + in_last;
}

std::uint32_t Regions::global(int region, std::uint32_t local) const noexcept {
  const std::uint32_t group = local / kBlock;
  const std::uint32_t slot = (static_cast<std::uint32_t>(region) + ranks_ - rotation(group)) % ranks_;
  return (group * ranks_ + slot) * kBlock + local % kBlock;
}

Regions::Owner Regions::owner_of(std::uint32_t index) const noexcept {
  const std::uint32_t block = index / kBlock;
  const std::uint32_t group = block / ranks_;
  const std::uint32_t slot = block - group * ranks_;
  return {(slot + rotation(group)) % ranks_, group * kBlock + index % kBlock};
}

void Regions::split(const SparseVector& whole, std::vector<SparseVector>& parts) const {
  parts.resize(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) parts[r].clear(size(static_cast<int>(r)));
  const bool full = whole.is_full();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Owner owner = owner_of(whole.index(i));
    SparseVector& part = parts[owner.region];
    if (!full) part.indices.push_back(owner.local);
    part.values.push_back(whole.values[i]);
  }
}

void Regions::join(const SparseVector& whole, const std::vector<std::vector<float>>& part_values,
                   std::vector<float>& values) {
  values.resize(whole.size());
  next_.assign(ranks_, 0);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::uint32_t region = owner_of(whole.index(i)).region;
    values[i] = part_values[region][next_[region]++];
  }
}

}  // namespace sparsewire
