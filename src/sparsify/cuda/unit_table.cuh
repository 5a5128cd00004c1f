// The units of a model as tables in device memory: their tiles, and which kernel finds the k-th entry of which unit.
// Has kernels, so one file may include it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/unit_select.cuh"
#include "sparsify/device_memory.h"

namespace sparsewire::cuda {

class UnitTable {
 public:
  // Makes the tables, unless they are those of these units, which are at the same place.
  void set_units(std::span<const Unit> units);
  // What is taken out of each unit. COST: nothing if it is what it was.
  void set_choices(std::span<const UnitChoice> choices, float factor, cudaStream_t stream);

  std::uint32_t tile_count() const noexcept { return static_cast<std::uint32_t>(tiles_.size()); }
  std::uint32_t unit_count() const noexcept { return static_cast<std::uint32_t>(units_.size()); }
  const std::vector<UnitTiles>& tiles_of_units() const noexcept { return host_units_; }
  // Whether anything can be chosen, and whether a k-th entry has to be found.
  bool takes_any() const noexcept { return takes_any_; }
  bool has_k() const noexcept { return small_count_ + large_count_ > 0; }

  const UnitTile* tiles() const noexcept { return tiles_.data(); }
  const Piece* pieces() const noexcept { return pieces_.data(); }
  const UnitTiles* units() const noexcept { return units_.data(); }
  Bar* bars() const noexcept { return bars_.data(); }
  const std::uint32_t* ks() const noexcept { return ks_.data(); }

  // Whether all units have a k and one tile. Then slots() is where there is room for the k entries of each, one after
  // the other; the last is where they end.
  bool is_one_tile_each() const noexcept { return is_one_tile_each_; }
  const std::uint32_t* slots() const noexcept { return slots_.data(); }
  const std::vector<std::uint32_t>& host_slots() const noexcept { return host_slots_; }

  // Queues the search for the bars of all units that have a k.
  void select(const float* memory, cudaStream_t stream);

 private:
  void list_units_with_k(std::span<const UnitChoice> choices, cudaStream_t stream);

  const Unit* source_ = nullptr;
  std::vector<UnitTiles> host_units_;
  std::vector<UnitChoice> choices_;
  float factor_ = 1;
  bool takes_any_ = false;
  bool is_one_tile_each_ = false;
  std::vector<std::uint32_t> host_slots_;
  std::uint32_t small_count_ = 0;
  std::uint32_t large_count_ = 0;
  std::uint32_t part_count_ = 0;
  DeviceArray<UnitTile> tiles_;
  DeviceArray<Piece> pieces_;
  DeviceArray<UnitTiles> units_;
  DeviceArray<Bar> bars_;
  DeviceArray<std::uint32_t> ks_;
  DeviceArray<std::uint32_t> slots_;
  DeviceArray<std::uint32_t> small_;  // units that one block searches
  DeviceArray<LargeUnit> large_;
  DeviceArray<LargePart> parts_;
  DeviceArray<std::uint32_t> bins_;  // of the large units
};

namespace unit_table {

// A unit of more tiles than this is searched by several blocks, each of which takes so many.
constexpr std::uint32_t kLargeTiles = 32;
constexpr std::uint32_t kPartTiles = 16;

// The contents become these. REQUIRES: nothing on the device uses the old ones.
template <class T>
void fill(DeviceArray<T>& array, const std::vector<T>& from, cudaStream_t stream) {
  if (array.size() != from.size() || array.data() == nullptr) array.resize(from.size());
  if (from.empty()) return;
  SPARSEWIRE_CUDA_CHECK(
      cudaMemcpyAsync(array.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
  SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

// The tile of a unit that begins at this position of its entries, from segment number `s` on.
inline UnitTile tile_at(const Unit& unit, std::size_t position, std::size_t& s, std::vector<Piece>& pieces) {
  UnitTile tile;
  tile.size = static_cast<std::uint32_t>(std::min<std::size_t>(kTile, unit.size - position));
  while (unit.segments[s].position + unit.segments[s].size <= position) ++s;
  tile.begin = unit.segments[s].begin + (position - unit.segments[s].position);
  std::size_t last = s;
  while (unit.segments[last].position + unit.segments[last].size < position + tile.size) ++last;
  if (last == s) return tile;
  tile.piece = static_cast<std::uint32_t>(pieces.size());
  tile.pieces = static_cast<std::uint32_t>(last - s + 1);
  pieces.push_back({tile.begin, 0});
  for (std::size_t i = s + 1; i <= last; ++i) {
    pieces.push_back({unit.segments[i].begin, static_cast<std::uint32_t>(unit.segments[i].position - position)});
  }
  return tile;
}

}  // namespace unit_table

inline void UnitTable::set_units(std::span<const Unit> units) {
  if (source_ == units.data() && host_units_.size() == units.size()) return;
  source_ = nullptr;
  std::vector<UnitTile> tiles;
  std::vector<Piece> pieces;
  host_units_.clear();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto first = static_cast<std::uint32_t>(tiles.size());
    std::size_t s = 0;
    for (std::size_t position = 0; position < units[u].size; position += kTile) {
      tiles.push_back(unit_table::tile_at(units[u], position, s, pieces));
      tiles.back().unit = static_cast<std::uint32_t>(u);
    }
    host_units_.push_back({first, static_cast<std::uint32_t>(tiles.size()) - first});
  }
  unit_table::fill(tiles_, tiles, nullptr);
  unit_table::fill(pieces_, pieces, nullptr);
  unit_table::fill(units_, host_units_, nullptr);
  choices_.clear();
  source_ = units.data();
}

inline void UnitTable::set_choices(std::span<const UnitChoice> choices, float factor, cudaStream_t stream) {
  if (factor == factor_ && std::ranges::equal(choices, choices_)) return;
  const bool same_kinds =
      choices.size() == choices_.size() && std::ranges::equal(
                                               choices, choices_, {}, [](const UnitChoice& c) { return c.k > 0; },
                                               [](const UnitChoice& c) { return c.k > 0; });
  choices_.clear();
  takes_any_ = false;
  std::vector<Bar> bars;
  std::vector<std::uint32_t> ks;
  for (const UnitChoice& choice : choices) {
    // A key at or above the threshold is a rank above it. What has a k gets its bar in each step.
    const bool has_k = choice.k > 0;
    bars.push_back({has_k ? 0 : choice.threshold, 0, has_k ? factor : 1});
    ks.push_back(static_cast<std::uint32_t>(choice.k));
    takes_any_ = takes_any_ || has_k || choice.threshold < kInfinityKey;
  }
  is_one_tile_each_ = tile_count() == unit_count();
  host_slots_.assign(1, 0);
  for (const UnitChoice& choice : choices) {
    is_one_tile_each_ = is_one_tile_each_ && choice.k > 0;
    host_slots_.push_back(host_slots_.back() + static_cast<std::uint32_t>(choice.k));
  }
  unit_table::fill(slots_, host_slots_, stream);
  unit_table::fill(bars_, bars, stream);
  unit_table::fill(ks_, ks, stream);
  if (!same_kinds) list_units_with_k(choices, stream);
  factor_ = factor;
  choices_.assign(choices.begin(), choices.end());
}

inline void UnitTable::list_units_with_k(std::span<const UnitChoice> choices, cudaStream_t stream) {
  std::vector<std::uint32_t> small;
  std::vector<LargeUnit> large;
  std::vector<LargePart> parts;
  for (std::uint32_t u = 0; u < choices.size(); ++u) {
    if (choices[u].k == 0) continue;
    const UnitTiles range = host_units_[u];
    if (range.count <= unit_table::kLargeTiles) {
      small.push_back(u);
      continue;
    }
    for (std::uint32_t t = 0; t < range.count; t += unit_table::kPartTiles) {
      parts.push_back({static_cast<std::uint32_t>(large.size()), range.first + t,
                       std::min(unit_table::kPartTiles, range.count - t)});
    }
    large.push_back({u, 0, 0});
  }
  unit_table::fill(small_, small, stream);
  unit_table::fill(large_, large, stream);
  unit_table::fill(parts_, parts, stream);
  bins_.resize(large.size() * kBins);
  small_count_ = static_cast<std::uint32_t>(small.size());
  large_count_ = static_cast<std::uint32_t>(large.size());
  part_count_ = static_cast<std::uint32_t>(parts.size());
}

inline void UnitTable::select(const float* memory, cudaStream_t stream) {
  if (small_count_ > 0) {
    select_in_units<<<small_count_, kSelectThreads, 0, stream>>>(memory, tiles(), pieces(), units(), small_.data(),
                                                                 ks_.data(), bars());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }
  for (int round = 0; large_count_ > 0 && round < kSelectRounds; ++round) {
    count_in_parts<<<part_count_, kSelectThreads, 0, stream>>>(memory, tiles(), pieces(), parts_.data(), large_.data(),
                                                               bars(), round, bins_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    find_in_large<<<large_count_, kSelectThreads, 0, stream>>>(large_.data(), ks_.data(), round, bins_.data(), bars());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }
}

}  // namespace sparsewire::cuda
