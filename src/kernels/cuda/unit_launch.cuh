// Launches the kernels of a step over one unit, and waits for their result. Has kernels, so one file may include it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <type_traits>

#include "kernels/cuda/finish_kernel.cuh"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/types.h"
#include "kernels/cuda/unit_arrays.cuh"
#include "kernels/cuda/unit_memory.h"

namespace sparsewire::cuda {

using kernels::ScaledGradient;

// Few blocks start faster, and many work faster: on an H200, which has 132 multiprocessors, 132 blocks are best for
// 28,000 candidates, and 264 for 280,000.
inline constexpr std::size_t kCandidatesPerBlock = 384;

struct UnitLaunch : UnitArrays {
  UnitLaunch(float* numbers, std::size_t entries, std::size_t most_entries)
      : UnitArrays(numbers, entries, most_entries) {
    configure();
  }

  // How many blocks of `finish` there may be: as many for each of its variants.
  void configure() {
    int device = 0;
    int count = 0;
    SPARSEWIRE_CUDA_CHECK(cudaGetDevice(&device));
    SPARSEWIRE_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    processors = static_cast<std::size_t>(count);
    const int in_each = std::min({configure_finish<By::magnitude>(), configure_finish<By::draw>(),
                                  configure_finish<By::score>(), configure_finish<By::all>()});
    const std::size_t fit = std::min<std::size_t>(processors * static_cast<std::size_t>(in_each), kMostBlocks);
    const std::size_t useful = std::max<std::size_t>(1, (tile_count + 15) / 16);
    most_blocks = std::min(fit, useful);
  }

  // How many are launched. A cooperative launch takes longer with more blocks, so where they would have few candidates
  // there is one for each multiprocessor. By a threshold it is not cooperative, and nobody knows how many there are.
  std::size_t blocks_for(std::size_t k) const {
    if (k == 0) return most_blocks;
    const std::size_t busy = std::max(wanted(k) / kCandidatesPerBlock, tile_count / kFinishThreads);
    return std::min(std::max(busy, processors), most_blocks);
  }

  // Returns how many blocks a multiprocessor has room for.
  template <By kBy>
  static int configure_finish() {
    int in_each = 0;
    SPARSEWIRE_CUDA_CHECK(
        cudaFuncSetAttribute(finish<kBy>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(FinishShared<kBy>)));
    SPARSEWIRE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&in_each, finish<kBy>, kFinishThreads,
                                                                        sizeof(FinishShared<kBy>)));
    return in_each;
  }

  // `threshold` is 0 where the guess counts.
  void queue(const ScaledGradient* gradient, std::size_t k, std::uint32_t threshold,
             const kernels::SecondChoice* second = nullptr, std::size_t second_k = 0) {
    queue_pass(gradient, k, threshold, false);
    queue_choice(k, threshold, second, second_k);
  }
  // After a pass over the same sums, all of whose candidates are in the memory again.
  void queue_second(std::size_t k) {
    queue_pass(nullptr, k, 0, true);
    queue_choice(k, 0, nullptr, 0);
  }

  void queue_pass(const ScaledGradient* gradient, std::size_t k, std::uint32_t threshold, bool is_second) {
    kernels::FirstAdd* const first = gradient == nullptr ? nullptr : gradient->first_add;
    if (first != nullptr) norm.queue(first->gradient, &first->clip, stream);
    const UnitPassArguments pass_arguments{.pass = {.memory = memory,
                                                    .gradient = gradient == nullptr ? nullptr : gradient->data,
                                                    .by = factors(gradient),
                                                    .first_add = first == nullptr ? nullptr : first->gradient.data,
                                                    .first_decay = first == nullptr ? 1 : first->gradient.decay,
                                                    .clipped = norm.data(),
                                                    .control = control.data(),
                                                    .tiles = tiles.data(),
                                                    .tile_norms = tile_norms.data(),
                                                    .indices = indices.data(),
                                                    .values = values.data(),
                                                    .arena_size = arena_size},
                                           .size = size,
                                           .threshold = threshold,
                                           .bins = k == 0 ? 0 : kFine,
                                           .fine = fine.data(),
                                           .is_second = is_second};
    if (first == nullptr) {
      with_type(gradient, [&]<class T>(T*) { pass<T><<<grid_of_tiles(), kPassThreads, 0, stream>>>(pass_arguments); });
    } else {
      with_type(&first->gradient, [&]<class T>(T*) {
        if constexpr (!std::is_void_v<T>) {
          pass<Velocity<T>><<<grid_of_tiles(), kPassThreads, 0, stream>>>(pass_arguments);
        }
      });
    }
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    has_added = true;
    if (first != nullptr) first->is_added = true;
  }

  void queue_choice(std::size_t k, std::uint32_t threshold, const kernels::SecondChoice* second, std::size_t second_k) {
    const std::size_t blocks = blocks_for(k);
    FinishArguments arguments{.memory = memory,
                              .tiles_count = tile_count,
                              .tiles_per_block = static_cast<std::uint32_t>((tile_count + blocks - 1) / blocks),
                              .control = control.data(),
                              .tiles = tiles.data(),
                              .tile_norms = tile_norms.data(),
                              .group_norms = group_norms.data(),
                              .group_counts = group_counts.data(),
                              .indices = indices.data(),
                              .values = values.data(),
                              .fine = fine.data(),
                              .k = k,
                              .threshold = threshold,
                              .wanted = static_cast<std::uint32_t>(wanted(k)),
                              .out_indices = out_indices.data(),
                              .out_values = out_values.data(),
                              .epoch = next_epoch(),
                              .result = result_on_device};
    if (k == 0) {
      queue_finish<By::all>(arguments, blocks);
    } else if (second == nullptr) {
      queue_finish<By::magnitude>(arguments, blocks);
    } else if (second->draw) {
      arguments.k_drawn = static_cast<std::uint32_t>(second_k);
      arguments.draw = *second->draw;
      queue_finish<By::draw>(arguments, blocks);
    } else {
      last_round.upload(second->last_round, stream);
      arguments.scores = {*second->regularisation, last_round.data(),
                          static_cast<std::uint32_t>(second->last_round.size())};
      queue_finish<By::score>(arguments, blocks);
    }
    mark_on_device(stream);
  }

  // Messages of a step that had the same number must not be there any more.
  std::uint32_t next_epoch() {
    if (++epoch == 0) {
      Control* const all = control.data();
      SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(all->near_counts, 0, sizeof(Control::near_counts), stream));
      SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(all->near_keys, 0, sizeof(Control::near_keys), stream));
      epoch = 1;
    }
    return epoch;
  }

  template <By kBy>
  void queue_finish(const FinishArguments& arguments, std::size_t blocks) {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;  // launched while the pass still runs
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;  // barriers of all blocks need all blocks to run
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(kFinishThreads);
    config.dynamicSmemBytes = sizeof(FinishShared<kBy>);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = kBy == By::all ? 1 : 2;
    SPARSEWIRE_CUDA_CHECK(cudaLaunchKernelEx(&config, finish<kBy>, arguments));
  }

  // Reads the result as soon as it is there, without a call.
  StepResult wait() const {
    std::array<std::uint32_t, kResultWords> words{};
    for (unsigned spins = 0; !read(words); ++spins) {
      if (spins % 4096 == 4095 && cudaStreamQuery(stream) != cudaErrorNotReady) {
        SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));  // it failed, or the result is there now
        if (!read(words)) throw CudaError("a step on the device", cudaErrorUnknown);
      }
    }
    mark_counted();
    return std::bit_cast<StepResult>(words);
  }
  // Whether all words are those of this step.
  bool read(std::array<std::uint32_t, kResultWords>& words) const {
    for (unsigned i = 0; i < kResultWords; ++i) {
      const std::uint64_t word = const_cast<const volatile std::uint64_t&>(result->words[i]);
      if (word >> 32U != epoch) return false;
      words[i] = static_cast<std::uint32_t>(word);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }

  Sent sent(const StepResult& from) const {
    return {.indices = out_indices.data(),
            .values = out_values.data(),
            .count = from.count,
            .kth = from.kth,
            .accumulated_norm2 = from.accumulated_norm2};
  }

  // After a step that failed: everything is in the memory again, and the counters begin anew.
  void put_all_back() {
    put_back<<<grid((tile_count + 7) / 8), 256, 0, stream>>>(memory, tiles.data(), tile_count, indices.data(),
                                                             values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    begin_anew<<<1, kArenas, 0, stream>>>(control.data());
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(fine.data(), 0, kFine * sizeof(std::uint32_t), stream));
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  Sent fail(const ScaledGradient& gradient, const StepResult& from) {
    put_all_back();
    if ((from.outcome & kMayOverflow) != 0) {
      has_added = gradient.first_add->is_added = false;
      return {.may_overflow = true};
    }
    with_type(&gradient, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        restore<T><<<grid_of_tiles(), kTileThreads, 0, stream>>>(memory, gradient.data, size, factors(&gradient),
                                                                 tiles.data());
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    return {.bad = from.bad};
  }

  Factors factors(const ScaledGradient* gradient) const {
    return gradient == nullptr ? Factors{} : Factors{gradient->scale, gradient->decay};
  }

  std::size_t processors = 0;
  std::size_t most_blocks = 0;
  std::uint32_t epoch = 0;
  bool has_added = false;  // the pass of the last step is queued
};

}  // namespace sparsewire::cuda
