// What all ways through a step of many units share: the tables of the units, the arrays of the step, and how its
// results come to the host. Has kernels, so one file may include it.
#pragma once

#include <cstring>
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/marks.h"
#include "kernels/cuda/types.h"
#include "kernels/cuda/unit_tiles.cuh"
#include "sparsify/cuda/host_entries.h"
#include "sparsify/cuda/launch.cuh"
#include "sparsify/cuda/unit_table.cuh"

namespace sparsewire::cuda {

struct UnitsStep {
  explicit UnitsStep(HostEntries& host_entries) : entries(host_entries), control(1) { host_failure.reserve(1); }

  // A step begins. REQUIRES: nothing is queued that uses the arrays.
  void begin(float* all_numbers, const ScaledGradient* its_gradient, cudaStream_t its_stream,
             std::span<const Unit> units) {
    numbers = all_numbers;
    gradient = its_gradient;
    stream = its_stream;
    reserve_for(units);
  }
  // Before the first kernel of the step.
  void begin_control() {
    if (!is_fresh) begin_anew<<<1, kArenas, 0, stream>>>(control.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    is_fresh = false;  // until all has gone well
  }
  void wait() const {
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
    mark_counted();
  }

  // Copies to the host whether the pass has failed, and the norms of all entries.
  void queue_norms(const Failure* failure) {
    download(failure, host_failure.data(), 1, stream);
    download(norms.data(), host_norms.data(), table.tile_count(), stream);
  }

  // The sums of the numbers of the tiles before each; behind the last, which is 0, that of all.
  void add_up(const DeviceArray<std::uint32_t>& counts, const DeviceArray<std::uint32_t>& before) {
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(scan_.data(), scan_bytes_, counts.data(), before.data(),
                                                        static_cast<int>(table.tile_count() + 1), stream));
  }

  void reserve_slots() {
    const std::size_t room = table.host_slots().back();
    out_indices.reserve(room);
    out_values.reserve(room);
    entries.reserve(room);
  }
  // Copies the counts of all units, and what is in their slots, to the host.
  void queue_slots(const std::uint32_t* counts) {
    const std::size_t room = table.host_slots().back();
    mark_on_device(stream);
    download(counts, host_ends.data(), table.unit_count(), stream);
    download(out_indices.data(), entries.indices.data(), room, stream);
    download(out_values.data(), entries.values.data(), room, stream);
  }
  // The entries are on the host, in the slots of their units. Closes the gaps behind units that had fewer.
  void collect_slots(TakenEntries& taken) {
    const std::vector<std::uint32_t>& slots = table.host_slots();
    std::size_t end = 0;
    for (std::size_t u = 0; u < table.unit_count(); ++u) {
      const std::size_t count = host_ends[u];
      if (end != slots[u] && count > 0) {
        std::memmove(entries.indices.data() + end, entries.indices.data() + slots[u], count * sizeof(std::uint32_t));
        std::memmove(entries.values.data() + end, entries.values.data() + slots[u], count * sizeof(float));
      }
      end += count;
      taken.ends[u] = end;
    }
    taken.indices = {entries.indices.data(), end};
    taken.values = {entries.values.data(), end};
    add_norms(taken);
    set_kth(taken);
  }

  // If one unit has a k: its k-th entry is the smallest that is sent.
  void set_kth(TakenEntries& taken) const {
    if (!table.only_one_has_k()) return;
    const std::size_t u = table.last_with_k();
    const std::size_t begin = u == 0 ? 0 : taken.ends[u - 1];
    if (taken.ends[u] - begin < table.k_of(u)) return;
    taken.kth = kInfinityKey;
    for (std::size_t i = begin; i < taken.ends[u]; ++i) {
      taken.kth = std::min(taken.kth, kernels::key_of(taken.values[i]));
    }
  }

  // The norms of each unit, from those of its tiles.
  void add_norms(TakenEntries& taken) {
    const std::vector<UnitTiles>& units = table.tiles_of_units();
    for (std::size_t u = 0; u < units.size(); ++u) {
      taken.accumulated_norm2[u] = kernels::sum_tiles(host_norms.data() + units[u].first, units[u].count);
    }
  }

  // Takes the accumulation back, where a tile has not done so itself.
  void restore() {
    if (gradient == nullptr) return;
    with_type(gradient, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        restore_tiles<T><<<table.tile_count(), kTileThreads, 0, stream>>>(numbers, gradient->data, factors_of(gradient),
                                                                          table.tiles(), table.pieces(), lists.data());
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    wait();
  }

  // Of the step under way.
  float* numbers = nullptr;
  const ScaledGradient* gradient = nullptr;
  cudaStream_t stream = nullptr;

  HostEntries& entries;
  UnitTable table;
  DeviceArray<Control> control;
  bool is_fresh = false;  // the control, for the next pass
  PinnedArray<Failure> host_failure;
  DeviceArray<double> norms;  // of tiles
  PinnedArray<double> host_norms;
  DeviceArray<TileList> lists;                          // of tiles, in the arenas
  DeviceArray<std::uint32_t> sent, sent_before;         // entries of each tile
  DeviceArray<std::uint32_t> ties, ties_before, above;  // of a search
  DeviceArray<std::uint32_t> ends;                      // of units, or their counts
  PinnedArray<std::uint32_t> host_ends;
  DeviceArray<std::uint32_t> out_indices;
  DeviceArray<float> out_values;

 private:
  // Makes room for what a pass over these units needs.
  void reserve_for(std::span<const Unit> units) {
    table.set_units(units);
    const std::size_t tiles = table.tile_count();
    norms.reserve(tiles);
    host_norms.reserve(tiles);
    ends.reserve(units.size());
    host_ends.reserve(units.size());
    if (sent.size() == tiles + 1) return;
    lists.resize(tiles);
    for (DeviceArray<std::uint32_t>* one : {&above, &ties, &ties_before, &sent, &sent_before}) one->resize(tiles + 1);
    scan_bytes_ = 0;
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, sent.data(), sent_before.data(),
                                                        static_cast<int>(tiles + 1), nullptr));
    scan_.resize(scan_bytes_);
  }

  DeviceArray<char> scan_;
  std::size_t scan_bytes_ = 0;
};

}  // namespace sparsewire::cuda
