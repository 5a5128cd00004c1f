// The units of a model as tables in device memory: their tiles, and which kernel finds the k-th entry of which unit.
// Has kernels, so one file may include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/unit_candidates.cuh"
#include "sparsify/device_memory.h"

namespace sparsewire::cuda {

class UnitTable {
 public:
  // Makes the tables, unless they are those of these units, which are at the same place.
  void set_units(std::span<const Unit> units);
  // What is taken out of each unit, and what the device decides it by. COST: O(1) if the key is what it was.
  void set_choices(const UnitChoices& choices, float factor, By by, cudaStream_t stream);

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
  const std::uint32_t* second_ks() const noexcept { return second_ks_.data(); }

  std::size_t k_of(std::size_t unit) const noexcept { return choices_[unit].k; }
  bool only_one_has_k() const noexcept { return small_count_ + large_count_ == 1; }
  std::size_t last_with_k() const noexcept { return last_with_k_; }

  // Whether all units have a k and one tile.
  bool is_one_tile_each() const noexcept { return is_one_tile_each_; }
  // Where there is room for the entries of each unit, one after the other, as many as it sends at most; the last is
  // where they end.
  const std::uint32_t* slots() const noexcept { return slots_.data(); }
  const std::vector<std::uint32_t>& host_slots() const noexcept { return host_slots_; }

  // Floors for the candidates of the next step. Without them there is no guess yet, or it would not pay. Where all
  // units have one tile each, the floors are always there, and 0 where there is no guess.
  bool has_floors() const noexcept { return has_floors_; }
  std::uint32_t* floors() const noexcept { return floors_.data(); }
  float* margins() const noexcept { return margins_.data(); }
  std::uint32_t room() const noexcept { return room_; }  // for candidates
  // Queues what sets them, after the bars were found.
  void queue_floors(cudaStream_t stream);

  // Queues the search for the bars of all units that have a k.
  void select(const float* memory, cudaStream_t stream);

 private:
  void make_tables(std::span<const UnitChoice> choices, float factor, cudaStream_t stream);
  void plan_slots(std::span<const UnitChoice> choices, cudaStream_t stream);
  void list_units_with_k(std::span<const UnitChoice> choices, cudaStream_t stream);

  const Unit* source_ = nullptr;
  std::vector<UnitTiles> host_units_;
  std::optional<ChoicesKey> key_;    // of what the tables are made of; empty: not known
  std::vector<UnitChoice> choices_;  // that the tables are made of
  std::vector<UnitChoice> wanted_;
  float factor_ = 1;
  bool takes_any_ = false;
  bool is_one_tile_each_ = false;
  bool may_guess_ = false;
  bool has_floors_ = false;
  std::size_t last_with_k_ = 0;
  std::uint32_t room_ = 0;
  std::vector<std::size_t> sizes_;  // of the units
  std::vector<std::uint32_t> host_slots_;
  std::uint32_t small_count_ = 0;
  std::uint32_t large_count_ = 0;
  std::uint32_t part_count_ = 0;
  DeviceArray<UnitTile> tiles_;
  DeviceArray<Piece> pieces_;
  DeviceArray<UnitTiles> units_;
  DeviceArray<Bar> bars_;
  DeviceArray<std::uint32_t> ks_;
  DeviceArray<std::uint32_t> second_ks_;
  DeviceArray<std::uint32_t> slots_;
  DeviceArray<std::uint32_t> floors_;
  DeviceArray<float> margins_;
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
  key_.reset();
  std::vector<UnitTile> tiles;
  std::vector<Piece> pieces;
  host_units_.clear();
  sizes_.clear();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto first = static_cast<std::uint32_t>(tiles.size());
    std::size_t s = 0;
    for (std::size_t position = 0; position < units[u].size; position += kTile) {
      tiles.push_back(unit_table::tile_at(units[u], position, s, pieces));
      tiles.back().unit = static_cast<std::uint32_t>(u);
    }
    host_units_.push_back({first, static_cast<std::uint32_t>(tiles.size()) - first});
    sizes_.push_back(units[u].size);
  }
  unit_table::fill(tiles_, tiles, nullptr);
  unit_table::fill(pieces_, pieces, nullptr);
  unit_table::fill(units_, host_units_, nullptr);
  choices_.clear();
  has_floors_ = false;
  source_ = units.data();
}

inline void UnitTable::set_choices(const UnitChoices& choices, float factor, By by, cudaStream_t stream) {
  const ChoicesKey key = choices.key({source_, host_units_.size()}, factor, static_cast<int>(by));
  if (key_ == key) return;
  key_.reset();  // unless all goes well
  // What is looked for in each unit: of the second choice only what is decided here.
  wanted_.assign(choices.all().begin(), choices.all().end());
  for (UnitChoice& one : wanted_) {
    if (by == By::score && one.second_k > 0) one.k = one.second_k;
    if (by != By::draw) one.second_k = 0;
  }
  if (factor != factor_ || wanted_ != choices_) make_tables(wanted_, factor, stream);
  key_ = key;
}

inline void UnitTable::make_tables(std::span<const UnitChoice> choices, float factor, cudaStream_t stream) {
  const bool same_kinds =
      choices.size() == choices_.size() && std::ranges::equal(
                                               choices, choices_, {}, [](const UnitChoice& c) { return c.k > 0; },
                                               [](const UnitChoice& c) { return c.k > 0; });
  choices_.clear();
  takes_any_ = false;
  std::vector<Bar> bars;
  std::vector<std::uint32_t> ks;
  std::vector<std::uint32_t> second_ks;
  for (const UnitChoice& choice : choices) {
    // A key at or above the threshold is a rank above it. What has a k gets its bar in each step.
    const bool has_k = choice.k > 0;
    bars.push_back({has_k ? 0 : choice.threshold, 0, has_k ? factor : 1});
    ks.push_back(static_cast<std::uint32_t>(choice.k));
    second_ks.push_back(static_cast<std::uint32_t>(choice.second_k));
    takes_any_ = takes_any_ || has_k || choice.threshold < kInfinityKey;
  }
  plan_slots(choices, stream);
  if (is_one_tile_each_ && floors_.size() < unit_count()) {
    floors_.resize(unit_count());
    margins_.resize(unit_count());
  }
  unit_table::fill(bars_, bars, stream);
  unit_table::fill(ks_, ks, stream);
  unit_table::fill(second_ks_, second_ks, stream);
  if (!same_kinds) list_units_with_k(choices, stream);
  has_floors_ = has_floors_ && same_kinds && may_guess_ && factor == factor_;
  factor_ = factor;
  choices_.assign(choices.begin(), choices.end());
}

// It pays to look at candidates if they are few. A threshold gives any number; a unit of small tensors sends all.
inline void UnitTable::plan_slots(std::span<const UnitChoice> choices, cudaStream_t stream) {
  is_one_tile_each_ = tile_count() == unit_count();
  may_guess_ = true;
  last_with_k_ = 0;
  host_slots_.assign(1, 0);
  std::size_t entries = 0;
  std::size_t room = 65536;
  for (std::size_t u = 0; u < choices.size(); ++u) {
    const bool has_k = choices[u].k > 0;
    const std::size_t most = has_k ? choices[u].k : choices[u].threshold == kLowestKey ? sizes_[u] : 0;
    is_one_tile_each_ = is_one_tile_each_ && has_k;
    may_guess_ = may_guess_ && most > 0;
    if (has_k) last_with_k_ = u;
    const std::size_t sent = choices[u].second_k > 0 ? choices[u].second_k : most;
    host_slots_.push_back(host_slots_.back() + static_cast<std::uint32_t>(sent));
    const auto count = static_cast<double>(most);
    const auto beyond = static_cast<std::size_t>(std::max(0.25 * count, 8 * std::sqrt(count) + 16));
    const bool is_small = !has_k || host_units_[u].count == 1;  // all entries are candidates
    room += is_small ? sizes_[u] : std::min(sizes_[u], 2 * (most + beyond));
    entries += sizes_[u];
  }
  may_guess_ = may_guess_ && room <= entries / 4 + 262144;
  room_ = static_cast<std::uint32_t>(std::min<std::size_t>(room, entries));
  unit_table::fill(slots_, host_slots_, stream);
}

inline void UnitTable::queue_floors(cudaStream_t stream) {
  has_floors_ = false;
  if (!may_guess_) return;
  floors_.reserve(unit_count());
  margins_.reserve(unit_count());
  set_floors<<<std::min(unit_count() / 256 + 1, 65536U), 256, 0, stream>>>(bars(), ks(), units(), unit_count(),
                                                                           floors(), margins());
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  has_floors_ = true;
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
