// Units of any size, of which the k-th entries are guessed (kernels/cuda/unit_candidates.cuh): a pass that adds the
// gradient and moves what reaches the floors to the arenas, and a kernel that chooses among that. Has kernels, so one
// file may include it.
#pragma once

#include "kernels/cuda/last_round.h"
#include "kernels/cuda/unit_candidates.cuh"
#include "sparsify/cuda/units_step.cuh"

namespace sparsewire::cuda {

class CandidateSift {
 public:
  explicit CandidateSift(UnitsStep& step) : step_(step) {}

  // The arenas have twice as much room, because units that send more than others are not spread evenly over them.
  void reserve(By by, const kernels::SecondChoice* second) {
    const std::uint32_t room = step_.table.room();
    if (by == By::score) last_round_.reserve(second->last_round.size());
    if (by != By::magnitude) ranks_.reserve(room);
    if (by == By::draw) wins_.reserve(room);
    step_.reserve_slots();
    arena_size_ = 2 * (room / kArenas) + static_cast<std::uint32_t>(kTile);
    arena_indices_.reserve(std::size_t{arena_size_} * kArenas);
    arena_values_.reserve(std::size_t{arena_size_} * kArenas);
    indices_.reserve(room);
    values_.reserve(room);
  }

  // Adds the gradient; with `takes` moves what reaches the floors to the arenas.
  void accumulate(bool takes) {
    const UnitTable& table = step_.table;
    const UnitsPassArguments arguments{.pass = {.memory = step_.numbers,
                                                .gradient = data_of(step_.gradient),
                                                .by = factors_of(step_.gradient),
                                                .control = step_.control.data(),
                                                .tiles = step_.lists.data(),
                                                .tile_norms = step_.norms.data(),
                                                .indices = arena_indices_.data(),
                                                .values = arena_values_.data(),
                                                .arena_size = arena_size_},
                                       .tiles = table.tiles(),
                                       .pieces = table.pieces(),
                                       .bars = table.bars(),
                                       .floors = takes ? table.floors() : nullptr};
    with_type(step_.gradient,
              [&]<class T>(T*) { pass_units<T><<<table.tile_count(), kPassThreads, 0, step_.stream>>>(arguments); });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  // Chooses among the entries that reach the floors, and takes the winners out if all went well.
  void queue(By by, const kernels::SecondChoice* second) {
    const UnitTable& table = step_.table;
    CandidateArguments arguments{.memory = step_.numbers,
                                 .control = step_.control.data(),
                                 .lists = step_.lists.data(),
                                 .arena_indices = arena_indices_.data(),
                                 .arena_values = arena_values_.data(),
                                 .units = table.units(),
                                 .ks = table.ks(),
                                 .slots = table.slots(),
                                 .bars = table.bars(),
                                 .floors = table.floors(),
                                 .margins = table.margins(),
                                 .before = step_.sent_before.data(),
                                 .room = table.room(),
                                 .indices = indices_.data(),
                                 .values = values_.data(),
                                 .wins = wins_.data(),
                                 .counts = step_.ends.data(),
                                 .out_indices = step_.out_indices.data(),
                                 .out_values = step_.out_values.data(),
                                 .second_ks = table.second_ks(),
                                 .ranks = ranks_.data()};
    if (by == By::draw) {
      arguments.draw = *second->draw;
      launch<By::draw>(arguments);
    } else if (by == By::score) {
      last_round_.upload(second->last_round, step_.stream);
      arguments.scores = {*second->regularisation, last_round_.data(),
                          static_cast<std::uint32_t>(second->last_round.size())};
      launch<By::score>(arguments);
    } else {
      launch<By::magnitude>(arguments);
    }
    step_.queue_slots(step_.ends.data());
  }

  void put_back() {
    constexpr unsigned kTilesOfBlock = kTileThreads / 32;
    const std::uint32_t tiles = step_.table.tile_count();
    cuda::put_back<<<(tiles + kTilesOfBlock - 1) / kTilesOfBlock, kTileThreads, 0, step_.stream>>>(
        step_.numbers, step_.lists.data(), tiles, arena_indices_.data(), arena_values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

 private:
  template <By kBy>
  void launch(const CandidateArguments& arguments) {
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
    config.gridDim = dim3(step_.table.unit_count());
    config.blockDim = dim3(kSelectThreads);
    config.dynamicSmemBytes = sizeof(ChooseShared);
    config.stream = step_.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    SPARSEWIRE_CUDA_CHECK(cudaLaunchKernelEx(&config, choose_candidates<kBy>, arguments));
  }

  UnitsStep& step_;
  bool is_configured_ = false;  // the kernel that chooses
  std::uint32_t arena_size_ = 0;
  DeviceArray<std::uint32_t> arena_indices_;
  DeviceArray<float> arena_values_;
  // Candidates of units that have many.
  DeviceArray<std::uint32_t> indices_;
  DeviceArray<float> values_;
  DeviceArray<std::uint8_t> wins_;
  DeviceArray<std::uint32_t> ranks_;
  LastRoundOnDevice last_round_;
};

}  // namespace sparsewire::cuda
