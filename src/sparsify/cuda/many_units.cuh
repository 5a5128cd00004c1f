// A pass over a model of many units. Has kernels, so one file may include it.
//
// Units that are no larger than a tile take two launches (tile_units.cuh). Others take a few: one adds the gradient and
// takes out what reaches the floors of the units; if these were good guesses, the winners are among that
// (unit_candidates.cuh); if not, all is put back, and as where there is no guess, the k-th entries are searched in all
// numbers (unit_select.cuh).
#pragma once

#include <cmath>
#include <cstring>
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/frame_writer.cuh"
#include "kernels/cuda/last_round.h"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/tile_units.cuh"
#include "kernels/cuda/types.h"
#include "kernels/cuda/unit_candidates.cuh"
#include "sparsify/cuda/host_entries.h"
#include "sparsify/cuda/unit_table.cuh"

namespace sparsewire::cuda {

using kernels::ScaledGradient;

inline constexpr unsigned long long kNoneBad = ~0ULL;

inline Factors factors_of(const ScaledGradient* gradient) {
  return gradient == nullptr ? Factors{} : Factors{gradient->scale, gradient->decay};
}
inline const void* data_of(const ScaledGradient* gradient) { return gradient == nullptr ? nullptr : gradient->data; }

inline unsigned blocks_for(std::size_t entries) {
  return static_cast<unsigned>(std::clamp<std::size_t>((entries + kEntryThreads - 1) / kEntryThreads, 1, 1U << 16U));
}

template <class T>
void download(const T* from, T* to, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
}

class ManyUnits {
 public:
  explicit ManyUnits(HostEntries& entries) : entries_(entries), control_(1), search_(1) { host_failure_.reserve(1); }

  // DeviceMemory::take(). Waits for the device. REQUIRES: nothing is queued that uses the same arrays.
  std::optional<std::size_t> take(float* numbers, std::span<const Unit> units, std::span<const UnitChoice> choices,
                                  float factor, const kernels::SecondChoice* second, const ScaledGradient* gradient,
                                  cudaStream_t stream, TakenEntries& taken) {
    numbers_ = numbers;
    gradient_ = gradient;
    stream_ = stream;
    // Scores are at most the magnitudes, so the best are candidates; but not if magnitudes have a factor.
    by_ = second == nullptr ? By::magnitude : second->draw ? By::draw : factor == 1 ? By::score : By::magnitude;
    reserve_for(units);
    set_choices(choices, factor, by_);
    if (!is_fresh_) begin_anew<<<1, kArenas, 0, stream>>>(control_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    is_fresh_ = false;  // until all has gone well
    if (table_.is_one_tile_each() && by_ == By::magnitude) return take_from_tiles(taken);
    const bool guesses = table_.has_floors();
    if (guesses) reserve_candidates(second);
    if (!guesses) set_choices(choices, factor, By::magnitude);
    accumulate(guesses);
    if (guesses) queue_candidates(second);
    if (!guesses && table_.takes_any()) queue_count();
    queue_norms(guesses ? &control_.data()->last_failure : &control_.data()->failure);
    wait();
    const Failure failure = host_failure_[0];
    is_fresh_ = guesses || failure.outcome == kDone;
    if (guesses && failure.outcome != kDone) put_candidates_back();
    if (failure.bad != kNoneBad) {
      restore();
      return failure.bad;
    }
    if (guesses && failure.outcome == kDone) {
      collect_slots(taken);
      taken.chosen_twice = by_ != By::magnitude;
      return std::nullopt;
    }
    if (guesses) {  // they were wrong
      set_choices(choices, factor, By::magnitude);
      queue_count();
      wait();
    }
    if (table_.takes_any()) take_out(taken);
    add_norms(taken);
    return std::nullopt;
  }

  // DeviceMemory::take_for_frame(), write_frame(), bring_taken() and put_taken_back(). REQUIRES: units of one tile,
  // with a k; the same stream.
  std::optional<std::size_t> take_for_frame(float* numbers, std::span<const Unit> units,
                                            std::span<const UnitChoice> choices, float factor,
                                            const ScaledGradient& gradient, cudaStream_t stream, Support& support) {
    numbers_ = numbers;
    gradient_ = &gradient;
    stream_ = stream;
    reserve_for(units);
    table_.set_choices(choices, factor, stream);
    reserve_tile_units();
    if (writer_ == nullptr) writer_ = std::make_unique<FrameWriter>();
    writer_->reserve(table_.host_slots().back());
    if (!is_fresh_) begin_anew<<<1, kArenas, 0, stream>>>(control_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    is_fresh_ = false;
    queue_tile_units(/*clears=*/false);
    add_up(sent_, sent_before_);
    download(&control_.data()->failure, host_failure_.data(), 1, stream);
    writer_->begin({.units = table_.unit_count(),
                    .room = table_.host_slots().back(),
                    .slots = table_.slots(),
                    .before = sent_before_.data(),
                    .slot_indices = out_indices_.data(),
                    .slot_values = out_values_.data()},
                   numbers, stream);
    support = writer_->support();
    mark_counted();
    return find_bad_tile();
  }
  bool write_frame(const FramePlan& plan, std::vector<std::byte>& frame, FrameNorms& norms) {
    writer_->write(plan, stream_);
    download(norms_.data(), host_norms_.data(), 2 * std::size_t{table_.tile_count()}, stream_);
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    norms.accumulated_norm2.assign(host_norms_.data(), host_norms_.data() + table_.tile_count());
    norms.sent_norm2.assign(host_norms_.data() + table_.tile_count(), host_norms_.data() + 2 * table_.tile_count());
    norms.rounding_loss2 = writer_->loss2();
    return writer_->finish(frame, stream_);
  }
  void bring_taken(TakenEntries& taken) {
    queue_slots(sent_.data());
    queue_norms(&control_.data()->failure);
    clear_tile_units<<<blocks_for(table_.unit_count()), kEntryThreads, 0, stream_>>>(
        numbers_, table_.unit_count(), table_.slots(), sent_.data(), out_indices_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    wait();
    collect_slots(taken);
  }
  std::size_t unit_count() const { return table_.unit_count(); }
  void put_taken_back(cudaStream_t stream) {
    put_tile_units_back<<<blocks_for(table_.unit_count()), kEntryThreads, 0, stream>>>(
        numbers_, table_.unit_count(), table_.slots(), sent_.data(), out_indices_.data(), out_values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

 private:
  void wait() const {
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    mark_counted();
  }
  // Copies to the host whether the pass has failed, and the norms of all entries.
  void queue_norms(const Failure* failure) {
    download(failure, host_failure_.data(), 1, stream_);
    download(norms_.data(), host_norms_.data(), table_.tile_count(), stream_);
  }
  double* sent_norms() const { return norms_.data() + table_.tile_count(); }

  // What is looked for in each unit: of the second choice only what is decided here.
  void set_choices(std::span<const UnitChoice> choices, float factor, By by) {
    choices_.assign(choices.begin(), choices.end());
    for (UnitChoice& one : choices_) {
      if (by == By::score && one.second_k > 0) one.k = one.second_k;
      if (by != By::draw) one.second_k = 0;
    }
    table_.set_choices(choices_, factor, stream_);
  }

  // Makes room for what a pass over these units needs.
  void reserve_for(std::span<const Unit> units) {
    table_.set_units(units);
    const std::size_t tiles = table_.tile_count();
    norms_.reserve(2 * tiles);  // of all entries, and of those that are sent
    host_norms_.reserve(2 * tiles);
    ends_.reserve(units.size());
    host_ends_.reserve(units.size());
    if (sent_.size() == tiles + 1) return;
    lists_.resize(tiles);
    for (DeviceArray<std::uint32_t>* one : {&above_, &ties_, &ties_before_, &sent_, &sent_before_}) {
      one->resize(tiles + 1);
    }
    scan_bytes_ = 0;
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, sent_.data(), sent_before_.data(),
                                                        static_cast<int>(tiles + 1), nullptr));
    scan_.resize(scan_bytes_);
  }

  // The sums of the numbers of the tiles before each; behind the last, which is 0, that of all.
  void add_up(const DeviceArray<std::uint32_t>& numbers, const DeviceArray<std::uint32_t>& before) {
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(scan_.data(), scan_bytes_, numbers.data(), before.data(),
                                                        static_cast<int>(table_.tile_count() + 1), stream_));
  }

  // Adds the gradient; with `takes` moves what reaches the floors to the arenas.
  void accumulate(bool takes) {
    const UnitsPassArguments arguments{.pass = {.memory = numbers_,
                                                .gradient = data_of(gradient_),
                                                .by = factors_of(gradient_),
                                                .control = control_.data(),
                                                .tiles = lists_.data(),
                                                .tile_norms = norms_.data(),
                                                .indices = arena_indices_.data(),
                                                .values = arena_values_.data(),
                                                .arena_size = arena_size_},
                                       .tiles = table_.tiles(),
                                       .pieces = table_.pieces(),
                                       .bars = table_.bars(),
                                       .floors = takes ? table_.floors() : nullptr};
    with_type(gradient_,
              [&]<class T>(T*) { pass_units<T><<<table_.tile_count(), kPassThreads, 0, stream_>>>(arguments); });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  void reserve_slots() {
    const std::size_t room = table_.host_slots().back();
    out_indices_.reserve(room);
    out_values_.reserve(room);
    entries_.reserve(room);
  }
  // The arenas have twice as much room, because units that send more than others are not spread evenly over them.
  void reserve_candidates(const kernels::SecondChoice* second) {
    if (by_ == By::score) last_round_.reserve(second->last_round.size());
    if (by_ != By::magnitude) candidate_ranks_.reserve(table_.room());
    reserve_slots();
    arena_size_ = 2 * (table_.room() / kArenas) + static_cast<std::uint32_t>(kTile);
    arena_indices_.reserve(std::size_t{arena_size_} * kArenas);
    arena_values_.reserve(std::size_t{arena_size_} * kArenas);
    candidate_indices_.reserve(table_.room());
    candidate_values_.reserve(table_.room());
    candidate_offsets_.reserve(table_.room());
    wins_.reserve(table_.room());
  }

  // Chooses among the entries that reach the floors, and takes the winners out if all went well.
  void queue_candidates(const kernels::SecondChoice* second) {
    const std::uint32_t units = table_.unit_count();
    CandidateArguments arguments{.memory = numbers_,
                                 .control = control_.data(),
                                 .lists = lists_.data(),
                                 .arena_indices = arena_indices_.data(),
                                 .arena_values = arena_values_.data(),
                                 .tiles = table_.tiles(),
                                 .pieces = table_.pieces(),
                                 .units = table_.units(),
                                 .ks = table_.ks(),
                                 .slots = table_.slots(),
                                 .bars = table_.bars(),
                                 .floors = table_.floors(),
                                 .margins = table_.margins(),
                                 .before = sent_before_.data(),
                                 .room = table_.room(),
                                 .indices = candidate_indices_.data(),
                                 .values = candidate_values_.data(),
                                 .offsets = candidate_offsets_.data(),
                                 .wins = wins_.data(),
                                 .counts = ends_.data(),
                                 .out_indices = out_indices_.data(),
                                 .out_values = out_values_.data(),
                                 .sent_norms = sent_norms(),
                                 .second_ks = table_.second_ks(),
                                 .ranks = candidate_ranks_.data()};
    if (by_ == By::draw) {
      arguments.draw = *second->draw;
      launch_choice<By::draw>(arguments);
    } else if (by_ == By::score) {
      last_round_.upload(second->last_round, stream_);
      arguments.scores = {*second->regularisation, last_round_.data(),
                          static_cast<std::uint32_t>(second->last_round.size())};
      launch_choice<By::score>(arguments);
    } else {
      launch_choice<By::magnitude>(arguments);
    }
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    queue_slots(ends_.data());
  }

  template <By kBy>
  void launch_choice(const CandidateArguments& arguments) {
    if (!std::exchange(is_configured_, true)) {
      for (const auto kernel :
           {choose_candidates<By::magnitude>, choose_candidates<By::draw>, choose_candidates<By::score>}) {
        SPARSEWIRE_CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ChooseShared)));
      }
    }
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;  // launched while the pass still runs
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(table_.unit_count());
    config.blockDim = dim3(kSelectThreads);
    config.dynamicSmemBytes = sizeof(ChooseShared);
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    SPARSEWIRE_CUDA_CHECK(cudaLaunchKernelEx(&config, choose_candidates<kBy>, arguments));
  }

  void put_candidates_back() {
    constexpr unsigned kTilesOfBlock = kTileThreads / 32;
    put_back<<<(table_.tile_count() + kTilesOfBlock - 1) / kTilesOfBlock, kTileThreads, 0, stream_>>>(
        numbers_, lists_.data(), table_.tile_count(), arena_indices_.data(), arena_values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  // Copies the counts of all units, and what is in their slots, to the host.
  void queue_slots(const std::uint32_t* counts) {
    const std::size_t room = table_.host_slots().back();
    mark_on_device(stream_);
    download(sent_norms(), host_norms_.data() + table_.tile_count(), table_.tile_count(), stream_);
    download(counts, host_ends_.data(), table_.unit_count(), stream_);
    download(out_indices_.data(), entries_.indices.data(), room, stream_);
    download(out_values_.data(), entries_.values.data(), room, stream_);
  }

  // All units have one tile. If the winners are cleared, the memory is 0 there afterwards.
  void queue_tile_units(bool clears) {
    const std::uint32_t units = table_.unit_count();
    const TileUnitsArguments arguments{.memory = numbers_,
                                       .gradient = data_of(gradient_),
                                       .by = factors_of(gradient_),
                                       .units = units,
                                       .tiles = table_.tiles(),
                                       .pieces = table_.pieces(),
                                       .bars = table_.bars(),
                                       .ks = table_.ks(),
                                       .slots = table_.slots(),
                                       .clears = clears,
                                       .floors = table_.floors(),
                                       .margins = table_.margins(),
                                       .norms = norms_.data(),
                                       .sent_norms = sent_norms(),
                                       .lists = lists_.data(),
                                       .control = control_.data(),
                                       .counts = sent_.data(),
                                       .indices = out_indices_.data(),
                                       .values = out_values_.data(),
                                       .search = search_.data(),
                                       .searched = searched_.data()};
    const unsigned blocks = (units + kUnitWarps - 1) / kUnitWarps;
    with_type(gradient_, [&]<class T>(T*) { sift_tile_units<T><<<blocks, kUnitThreads, 0, stream_>>>(arguments); });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    search_tile_units<<<std::min(units, kSearchBlocks), kTileThreads, 0, stream_>>>(arguments);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }
  void reserve_tile_units() {
    reserve_slots();
    searched_.reserve(table_.unit_count());
  }

  std::optional<std::size_t> take_from_tiles(TakenEntries& taken) {
    reserve_tile_units();
    queue_tile_units(/*clears=*/true);
    queue_slots(sent_.data());
    queue_norms(&control_.data()->failure);
    wait();
    if (const auto bad = find_bad_tile()) return bad;
    collect_slots(taken);
    return std::nullopt;
  }

  // After a pass over units of one tile: whether a sum is not finite; then all is taken back.
  std::optional<std::size_t> find_bad_tile() {
    is_fresh_ = host_failure_[0].bad == kNoneBad;
    if (is_fresh_) return std::nullopt;
    put_taken_back(stream_);
    restore();
    return host_failure_[0].bad;
  }

  // The entries are on the host, in the slots of their units. Closes the gaps behind units that had fewer.
  void collect_slots(TakenEntries& taken) {
    const std::vector<std::uint32_t>& slots = table_.host_slots();
    std::size_t end = 0;
    for (std::size_t u = 0; u < table_.unit_count(); ++u) {
      const std::size_t count = host_ends_[u];
      if (end != slots[u] && count > 0) {
        std::memmove(entries_.indices.data() + end, entries_.indices.data() + slots[u], count * sizeof(std::uint32_t));
        std::memmove(entries_.values.data() + end, entries_.values.data() + slots[u], count * sizeof(float));
      }
      end += count;
      taken.ends[u] = end;
    }
    taken.indices = {entries_.indices.data(), end};
    taken.values = {entries_.values.data(), end};
    add_norms(taken);
    set_kth(taken);
  }

  // If one unit has a k: its k-th entry is the smallest that is sent.
  void set_kth(TakenEntries& taken) const {
    if (!table_.only_one_has_k()) return;
    const std::size_t u = table_.last_with_k();
    const std::size_t begin = u == 0 ? 0 : taken.ends[u - 1];
    if (taken.ends[u] - begin < table_.k_of(u)) return;
    taken.kth = kInfinityKey;
    for (std::size_t i = begin; i < taken.ends[u]; ++i) {
      taken.kth = std::min(taken.kth, kernels::key_of(taken.values[i]));
    }
  }

  // The norms of each unit, from those of its tiles.
  void add_norms(TakenEntries& taken) {
    const std::vector<UnitTiles>& units = table_.tiles_of_units();
    if (table_.takes_any()) taken.sent_norm2.resize(units.size());
    for (std::size_t u = 0; u < units.size(); ++u) {
      double* const norms = host_norms_.data() + units[u].first;
      taken.accumulated_norm2[u] = kernels::sum_tiles(norms, units[u].count);
      if (table_.takes_any()) taken.sent_norm2[u] = kernels::sum_tiles(norms + table_.tile_count(), units[u].count);
    }
  }

  // Finds the bar of each unit in all its numbers, and how many entries each tile sends.
  void queue_count() {
    const std::uint32_t tiles = table_.tile_count();
    const std::uint32_t units = table_.unit_count();
    if (table_.has_k()) table_.select(numbers_, stream_);
    count_tiles<<<tiles, kTileThreads, 0, stream_>>>(numbers_, table_.tiles(), table_.pieces(), table_.bars(),
                                                     above_.data(), ties_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    add_up(ties_, ties_before_);
    count_sent<<<blocks_for(tiles), kEntryThreads, 0, stream_>>>(table_.tiles(), tiles, table_.units(), table_.bars(),
                                                                 above_.data(), ties_.data(), ties_before_.data(),
                                                                 sent_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    add_up(sent_, sent_before_);
    find_ends<<<blocks_for(units), kEntryThreads, 0, stream_>>>(table_.units(), units, sent_before_.data(),
                                                                ends_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(ends_.data(), host_ends_.data(), units, stream_);
    table_.queue_floors(stream_);
  }

  // Takes out what queue_count() has found.
  void take_out(TakenEntries& taken) {
    const std::uint32_t tiles = table_.tile_count();
    const std::size_t total = host_ends_[table_.unit_count() - 1];
    try {
      out_indices_.reserve(total);
      out_values_.reserve(total);
      entries_.reserve(total);
    } catch (...) {
      restore();
      throw;
    }
    take_tiles<<<tiles, kTileThreads, 0, stream_>>>(numbers_, table_.tiles(), table_.pieces(), table_.units(),
                                                    table_.bars(), ties_before_.data(), sent_before_.data(),
                                                    out_indices_.data(), out_values_.data(), sent_norms());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(stream_);
    download(sent_norms(), host_norms_.data() + tiles, tiles, stream_);
    download(out_indices_.data(), entries_.indices.data(), total, stream_);
    download(out_values_.data(), entries_.values.data(), total, stream_);
    wait();
    taken.indices = {entries_.indices.data(), total};
    taken.values = {entries_.values.data(), total};
    taken.ends.assign(host_ends_.data(), host_ends_.data() + table_.unit_count());
    set_kth(taken);
  }

  // Takes the accumulation back, where a tile has not done so itself.
  void restore() {
    if (gradient_ == nullptr) return;
    with_type(gradient_, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        restore_tiles<T><<<table_.tile_count(), kTileThreads, 0, stream_>>>(
            numbers_, gradient_->data, factors_of(gradient_), table_.tiles(), table_.pieces(), lists_.data());
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    wait();
  }

  // Of the pass under way.
  float* numbers_ = nullptr;
  const ScaledGradient* gradient_ = nullptr;
  cudaStream_t stream_ = nullptr;
  By by_ = By::magnitude;       // what is decided here
  bool is_configured_ = false;  // the kernel that chooses
  std::vector<UnitChoice> choices_;

  HostEntries& entries_;
  UnitTable table_;
  DeviceArray<Control> control_;
  bool is_fresh_ = false;  // control_, for the next pass
  PinnedArray<Failure> host_failure_;
  DeviceArray<double> norms_;  // of tiles
  PinnedArray<double> host_norms_;
  DeviceArray<TileList> lists_;  // of tiles, in the arenas
  DeviceArray<std::uint32_t> arena_indices_;
  DeviceArray<float> arena_values_;
  std::uint32_t arena_size_ = 0;
  DeviceArray<std::uint32_t> above_, ties_, ties_before_, sent_, sent_before_;
  DeviceArray<char> scan_;
  std::size_t scan_bytes_ = 0;
  DeviceArray<std::uint32_t> ends_;  // of units, or their counts
  PinnedArray<std::uint32_t> host_ends_;
  DeviceArray<std::uint32_t> candidate_indices_;
  DeviceArray<float> candidate_values_;
  DeviceArray<std::uint16_t> candidate_offsets_;
  DeviceArray<std::uint8_t> wins_;
  std::unique_ptr<FrameWriter> writer_;  // null until a frame is written
  DeviceArray<UnitSearch> search_;
  DeviceArray<std::uint32_t> searched_;
  DeviceArray<std::uint32_t> candidate_ranks_;
  LastRoundOnDevice last_round_;
  DeviceArray<std::uint32_t> out_indices_;
  DeviceArray<float> out_values_;
};

}  // namespace sparsewire::cuda
