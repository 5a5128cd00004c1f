#include "exchange/regions.h"

#include <algorithm>
#include <bit>

#include "core/slices.h"

namespace sparsewire {
namespace {

constexpr std::uint32_t kBlock = 16;
constexpr std::size_t kGrain = 4096;  // entries that are worth a thread

// The finaliser of MurmurHash3: every bit of the number reaches every bit of the result.
std::uint32_t mix(std::uint32_t number) noexcept {
  number = (number ^ number >> 16) * 0x85EBCA6BU;
  number = (number ^ number >> 13) * 0xC2B2AE35U;
  return number ^ number >> 16;
}

// Makes room for `size` items, and for some more where it has to allocate: counts change a little in every step.
template <class T>
void resize_with_room(std::vector<T>& items, std::size_t size) {
  if (items.capacity() < size) items.reserve(size + size / 4 + 64);
  items.resize(size);
}

}  // namespace

// With s = 28 + ceil(log2 ranks) and m = ceil(2^s / ranks), m * ranks - 2^s < ranks <= 2^(s - 28), so that the division
// by multiplication is exact for all numbers of 28 bits (Granlund and Montgomery, 1994), and 57 bits hold the product.
Regions::Regions(std::uint64_t dim, int ranks, Pool* pool)
    : dim_(dim),
      ranks_(static_cast<std::uint32_t>(ranks)),
      shift_(28 + static_cast<unsigned>(std::bit_width(ranks_ - 1))),
      hash_reciprocal_(~std::uint64_t{0} / ranks_ + 1),
      pool_(pool) {
  reciprocal_ = ((std::uint64_t{1} << shift_) + ranks_ - 1) / ranks_;
  for (int r = 0; r < ranks; ++r) sizes_.push_back(size(r));
}

// mix(group) % ranks: the fraction of 2^64 that the product leaves is the remainder over `ranks` (Lemire, Kaser and
// Kurz, Faster remainder by direct computation, 2019).
inline std::uint32_t Regions::rotation(std::uint32_t group) const noexcept {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t fraction = hash_reciprocal_ * mix(group);
  return static_cast<std::uint32_t>(Wide{fraction} * ranks_ >> 64);
}

// (region - rotation) modulo ranks: the block of the group that the region owns.
inline std::uint32_t Regions::slot_of(std::uint32_t region, std::uint32_t group) const noexcept {
  const std::uint32_t turned = rotation(group);
  return region - turned + (region < turned ? ranks_ : 0);
}

std::uint64_t Regions::size(int region) const noexcept {
  if (dim_ == 0) return 0;
  const std::uint64_t last_block = (dim_ - 1) / kBlock;
  const std::uint64_t last_group = last_block / ranks_;  // all groups before it are complete
  const std::uint32_t slot = slot_of(static_cast<std::uint32_t>(region), static_cast<std::uint32_t>(last_group));
  const std::uint64_t block = last_group * ranks_ + slot;
  const std::uint64_t in_last = block < last_block ? kBlock : block == last_block ? dim_ - last_block * kBlock : 0;
  return last_group * kBlock + in_last;
}

std::uint32_t Regions::global(int region, std::uint32_t local) const noexcept {
  const std::uint32_t group = local / kBlock;
  return (group * ranks_ + slot_of(static_cast<std::uint32_t>(region), group)) * kBlock + local % kBlock;
}

void Regions::make_global(int region, SparseVector& part) const {
  if (ranks_ == 1) return;  // the region is the model
  if (part.is_full()) {
    part.indices.resize(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) part.indices[i] = static_cast<std::uint32_t>(i);
  }
  for (std::uint32_t& index : part.indices) index = global(region, index);
  part.dim = dim_;
}

inline Regions::Owner Regions::owner_of(std::uint32_t index) const noexcept {
  const std::uint32_t block = index / kBlock;
  const auto group = static_cast<std::uint32_t>(block * reciprocal_ >> shift_);
  const std::uint32_t turned = block - group * ranks_ + rotation(group);
  return {turned - (turned >= ranks_ ? ranks_ : 0), group * kBlock + index % kBlock};
}

// Calls slice(begin, end, next) for each thread's slice of the entries; next[r] is the number of its first entry of
// region r in the part r, and is the thread's own.
template <class Slice>
void Regions::for_each_slice_of_split(Slice slice) {
  next_ = begins_;
  for_each_slice(pool_, split_size_, kGrain, [&](std::size_t begin, std::size_t end, int thread) {
    slice(begin, end, next_.data() + static_cast<std::size_t>(thread) * stride());
  });
}

// First each thread finds the owners of its entries and counts them; these counts say where its entries begin in each
// part.
void Regions::split(const SparseVector& whole, std::vector<SparseVector>& parts) {
  if (ranks_ == 1) {
    parts.resize(1);
    parts[0].clear(dim_);
    resize_with_room(parts[0].indices, whole.indices.size());
    resize_with_room(parts[0].values, whole.size());
    std::copy(whole.indices.begin(), whole.indices.end(), parts[0].indices.begin());
    std::copy(whole.values.begin(), whole.values.end(), parts[0].values.begin());
    return;
  }
  const bool full = whole.is_full();
  split_size_ = whole.size();
  region_of_.reserve_with_room(split_size_);
  locals_.reserve_with_room(split_size_);
  std::uint16_t* const regions = region_of_.data();
  std::uint32_t* const locals = locals_.data();
  const std::size_t threads = pool_ == nullptr ? 1 : static_cast<std::size_t>(pool_->size());
  begins_.assign(threads * stride(), 0);
  for_each_slice_of_split([&](std::size_t begin, std::size_t end, std::size_t* counts) {
    for (std::size_t i = begin; i < end; ++i) {
      const Owner owner = owner_of(full ? static_cast<std::uint32_t>(i) : whole.indices[i]);
      regions[i] = static_cast<std::uint16_t>(owner.region);
      locals[i] = owner.local;
      ++counts[owner.region];
    }
  });
  parts.resize(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    std::size_t size = 0;
    for (std::size_t t = 0; t < threads; ++t) {
      begins_[t * stride() + r] = size;
      size += next_[t * stride() + r];
    }
    parts[r].dim = sizes_[r];
    parts[r].draw.units.clear();
    resize_with_room(parts[r].indices, full ? 0 : size);
    resize_with_room(parts[r].values, size);
  }
  for_each_slice_of_split([&](std::size_t begin, std::size_t end, std::size_t* next) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t region = regions[i];
      const std::size_t at = next[region]++;
      if (!full) parts[region].indices[at] = locals[i];
      parts[region].values[at] = whole.values[i];
    }
  });
}

void Regions::join(const std::vector<std::vector<float>>& part_values, std::vector<float>& values) {
  if (ranks_ == 1) {
    resize_with_room(values, part_values[0].size());
    std::copy(part_values[0].begin(), part_values[0].end(), values.begin());
    return;
  }
  resize_with_room(values, split_size_);
  const std::uint16_t* const regions = region_of_.data();
  for_each_slice_of_split([&](std::size_t begin, std::size_t end, std::size_t* next) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t region = regions[i];
      values[i] = part_values[region][next[region]++];
    }
  });
}

}  // namespace sparsewire
