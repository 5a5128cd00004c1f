#include "exchange/regions.h"

#include <algorithm>
#include <numeric>

#include "core/room.h"
#include "core/slices.h"
#include "kernels/simd.h"

namespace sparsewire {
namespace {

using kernels::RegionMap;

constexpr std::size_t kGrain = 4096;  // entries that are worth a thread
constexpr std::size_t kPiece = 1024;  // entries whose owners are found, and counted while they are in the cache

// Calls work(i) for begin .. end - 1, four in a turn: the work is so short that a loop would take a quarter of the
// time.
template <class Work>
void for_each_in_fours(std::size_t begin, std::size_t end, Work work) {
  std::size_t i = begin;
  for (; i + 4 <= end; i += 4) {
    work(i);
    work(i + 1);
    work(i + 2);
    work(i + 3);
  }
  for (; i < end; ++i) work(i);
}

}  // namespace

Regions::Regions(std::uint64_t dim, int ranks, Pool* pool)
    : dim_(dim), map_(static_cast<std::uint32_t>(ranks)), pool_(pool) {
  kernels::choose_simd();  // may throw; the kernels must not
  for (int r = 0; r < ranks; ++r) sizes_.push_back(size(r));
}

std::uint64_t Regions::size(int region) const noexcept {
  if (dim_ == 0) return 0;
  const std::uint64_t last_block = (dim_ - 1) / RegionMap::kBlock;
  const std::uint64_t last_group = last_block / map_.ranks();  // all groups before it are complete
  const std::uint32_t slot = map_.slot_of(static_cast<std::uint32_t>(region), static_cast<std::uint32_t>(last_group));
  const std::uint64_t block = last_group * map_.ranks() + slot;
  const std::uint64_t in_last = block < last_block    ? RegionMap::kBlock
                                : block == last_block ? dim_ - last_block * RegionMap::kBlock
                                                      : 0;
  return last_group * RegionMap::kBlock + in_last;
}

std::uint32_t Regions::global(int region, std::uint32_t local) const noexcept {
  return map_.global(static_cast<std::uint32_t>(region), local);
}

void Regions::make_global(int region, SparseVector& part) const {
  if (map_.ranks() == 1) return;  // the region is the model
  if (part.is_full()) {
    part.indices.resize(part.size());
    std::iota(part.indices.begin(), part.indices.end(), std::uint32_t{0});
  }
  kernels::make_global(map_, static_cast<std::uint32_t>(region), part.indices);
  part.dim = dim_;
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

// Calls work(at, region, local, size) for each block of the model, on the threads of the pool: `size` entries, which
// begin at the index `at` of the model and at the index `local` of the region. So full vectors need no owner for each
// entry.
template <class Work>
void Regions::for_each_block(Work work) const {
  const std::uint32_t ranks = map_.ranks();
  const std::uint64_t group_size = std::uint64_t{ranks} * RegionMap::kBlock;
  const std::size_t groups = (dim_ + group_size - 1) / group_size;
  const std::size_t grain = std::max<std::size_t>(1, kGrain / group_size);
  for_each_slice(pool_, groups, grain, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t group = begin; group < end; ++group) {
      std::uint64_t at = group * group_size;
      const std::uint64_t group_end = std::min(dim_, at + group_size);
      std::uint32_t region = map_.owner_of(static_cast<std::uint32_t>(at)).region;
      for (; at < group_end; at += RegionMap::kBlock) {
        work(at, region, group * RegionMap::kBlock, std::min<std::size_t>(RegionMap::kBlock, group_end - at));
        region = region + 1 == ranks ? 0 : region + 1;
      }
    }
  });
}

void Regions::split_full(const SparseVector& whole, std::vector<SparseVector>& parts) {
  parts.resize(sizes_.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r].dim = sizes_[r];
    parts[r].draw.units.clear();
    parts[r].indices.clear();
    resize_with_room(parts[r].values, sizes_[r]);
  }
  for_each_block([&](std::size_t at, std::uint32_t region, std::size_t local, std::size_t size) {
    std::copy_n(whole.values.data() + at, size, parts[region].values.data() + local);
  });
}

bool Regions::are_full(std::span<const SparseVector> parts) const noexcept {
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].indices.empty() || parts[r].size() != sizes_[r]) return false;
  }
  return parts.size() == sizes_.size();
}

void Regions::unite_full(std::span<const SparseVector> parts, SparseVector& whole) const {
  whole.dim = dim_;
  whole.draw.units.clear();
  whole.indices.clear();
  whole.values.resize(dim_);
  for_each_block([&](std::size_t at, std::uint32_t region, std::size_t local, std::size_t size) {
    const float* const from = parts[region].values.data() + local;
    float* const to = whole.values.data() + at;
    for (std::size_t i = 0; i < size; ++i) to[i] = 0.0F + from[i];
  });
}

// First each thread finds the owners of its entries and counts them; these counts say where its entries begin in each
// part.
void Regions::split(const SparseVector& whole, std::vector<SparseVector>& parts) {
  if (map_.ranks() == 1) {
    parts.resize(1);
    parts[0].clear(dim_);
    resize_with_room(parts[0].indices, whole.indices.size());
    resize_with_room(parts[0].values, whole.size());
    std::copy(whole.indices.begin(), whole.indices.end(), parts[0].indices.begin());
    std::copy(whole.values.begin(), whole.values.end(), parts[0].values.begin());
    return;
  }
  split_size_ = whole.size();
  split_full_ = whole.is_full();
  if (split_full_) return split_full(whole, parts);
  region_of_.reserve_with_room(split_size_);
  locals_.reserve_with_room(split_size_);
  std::uint16_t* const regions = region_of_.data();
  std::uint32_t* const locals = locals_.data();
  const std::size_t threads = pool_ == nullptr ? 1 : static_cast<std::size_t>(pool_->size());
  begins_.assign(threads * stride(), 0);
  for_each_slice_of_split([&](std::size_t begin, std::size_t end, std::size_t* counts) {
    for (std::size_t at = begin; at < end; at += kPiece) {
      const std::size_t size = std::min(kPiece, end - at);
      kernels::find_owners(map_, {whole.indices.data() + at, size}, regions + at, locals + at);
      for_each_in_fours(at, at + size, [&](std::size_t i) { ++counts[regions[i]]; });
    }
  });
  const std::uint32_t ranks = map_.ranks();
  parts.resize(ranks);
  indices_.resize(ranks);
  values_.resize(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    std::size_t size = 0;
    for (std::size_t t = 0; t < threads; ++t) {
      begins_[t * stride() + r] = size;
      size += next_[t * stride() + r];
    }
    parts[r].dim = sizes_[r];
    parts[r].draw.units.clear();
    resize_with_room(parts[r].indices, size);
    resize_with_room(parts[r].values, size);
    indices_[r] = parts[r].indices.data();
    values_[r] = parts[r].values.data();
  }
  std::uint32_t* const* const part_indices = indices_.data();
  float* const* const part_values = values_.data();
  const float* const values = whole.values.data();
  for_each_slice_of_split([=](std::size_t begin, std::size_t end, std::size_t* next) {
    for_each_in_fours(begin, end, [=](std::size_t i) {  // copies of the pointers, which the compiler keeps in registers
      const std::uint32_t region = regions[i];
      const std::size_t at = next[region]++;
      part_indices[region][at] = locals[i];
      part_values[region][at] = values[i];
    });
  });
}

void Regions::join(const std::vector<std::vector<float>>& part_values, std::vector<float>& values) {
  if (map_.ranks() == 1) {
    resize_with_room(values, part_values[0].size());
    std::copy(part_values[0].begin(), part_values[0].end(), values.begin());
    return;
  }
  resize_with_room(values, split_size_);
  if (split_full_) {
    return for_each_block([&](std::size_t at, std::uint32_t region, std::size_t local, std::size_t size) {
      std::copy_n(part_values[region].data() + local, size, values.data() + at);
    });
  }
  const std::uint16_t* const regions = region_of_.data();
  for_each_slice_of_split([&](std::size_t begin, std::size_t end, std::size_t* next) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t region = regions[i];
      values[i] = part_values[region][next[region]++];
    }
  });
}

}  // namespace sparsewire
