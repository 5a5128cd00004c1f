// Finds the k-th entry of one unit where there is no good guess of it: by a sample, and by counting all sums. Has
// kernels, so one file may include it.
#pragma once

#include <cub/device/device_scan.cuh>
#include <memory>
#include <utility>

#include "kernels/cuda/search.cuh"
#include "kernels/cuda/unit_launch.cuh"

namespace sparsewire::cuda {

// What a search by counting needs.
struct Counting {
  explicit Counting(std::size_t tiles)
      : bins(kBins), above(tiles), ties(tiles), above_before(tiles), ties_before(tiles) {
    host_bins.reserve(kBins);
    host_norm.reserve(1);
    norm.resize(1);
    std::size_t bytes = 0;
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, above.data(), above_before.data(),
                                                        static_cast<std::int64_t>(tiles), nullptr));
    scan.resize(bytes);
  }

  DeviceArray<std::uint32_t> bins, above, ties, above_before, ties_before;
  PinnedArray<std::uint32_t> host_bins;
  DeviceArray<double> norm;
  PinnedArray<double> host_norm;
  DeviceArray<char> scan;
};

struct UnitSearches : UnitLaunch {
  using UnitLaunch::UnitLaunch;

  void estimate_threshold(const ScaledGradient* gradient, std::size_t k) {
    if (sampled.size() == 0) sampled.resize(2 * kSampleBins);
    with_type(gradient, [&]<class T>(T*) {
      sample<T><<<kSampleBlocks, kSampleThreads, 0, stream>>>(memory, gradient == nullptr ? nullptr : gradient->data,
                                                              size, factors(gradient), sampled.data());
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    const double hits = static_cast<double>(k) * kSample / static_cast<double>(size);
    const auto rank = static_cast<std::uint32_t>(std::ceil(hits + 4 * std::sqrt(hits) + 4));
    const double room = 2.0 * arena_size * kArenas * kSample / static_cast<double>(size);
    choose_threshold<<<1, kSampleThreads, 0, stream>>>(
        sampled.data(), std::min(rank, kSample), static_cast<std::uint32_t>(std::min<double>(rank + room, kSample)),
        control.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  // How many sums are above a key and equal to it: in all tiles, in each, and before each.
  struct AboveAndTies {
    std::size_t above;
    std::size_t ties;
  };
  // kLikely becomes the key that it stands for.
  AboveAndTies count_above(std::uint32_t& kth) {
    Counting& c = *counting;
    cuda::count_winners<<<grid_of_tiles(), kTileThreads, 0, stream>>>(memory, size, kth, control.data(), c.above.data(),
                                                                      c.ties.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    add_up(c.above, c.above_before);
    add_up(c.ties, c.ties_before);
    const std::size_t end = tile_count - 1;
    const std::array<const std::uint32_t*, 5> from = {c.above_before.data() + end, c.above.data() + end,
                                                      c.ties_before.data() + end, c.ties.data() + end,
                                                      &control.data()->likely};
    for (std::size_t i = 0; i < from.size(); ++i) {
      SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(c.host_bins.data() + i, from[i], 4, cudaMemcpyDeviceToHost, stream));
    }
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
    if (kth == kLikely) kth = c.host_bins[4];
    return {std::size_t{c.host_bins[0]} + c.host_bins[1], std::size_t{c.host_bins[2]} + c.host_bins[3]};
  }

  // The k-th key of the sums in the memory, by counting all. For any numbers, in three passes.
  std::uint32_t find_kth_key(std::size_t k) {
    Counting& c = *counting;
    std::uint32_t prefix = 0;
    std::size_t rank = k;
    for (const auto [above, shift] : {std::pair{31, 20}, {20, 10}, {10, 0}}) {
      SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(c.bins.data(), 0, kBins * sizeof(std::uint32_t), stream));
      count_keys<<<1056, kTileThreads, 0, stream>>>(memory, size, prefix, shift, above, c.bins.data());
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
      SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(c.host_bins.data(), c.bins.data(), kBins * sizeof(std::uint32_t),
                                            cudaMemcpyDeviceToHost, stream));
      SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
      std::uint32_t bin = (1U << static_cast<unsigned>(above - shift)) - 1;
      while (bin > 0 && rank > c.host_bins[bin]) rank -= c.host_bins[bin--];
      prefix = prefix << static_cast<unsigned>(above - shift) | bin;
    }
    return prefix;
  }

  // The k largest of the sums in the memory, by counting. For any numbers, in two to six passes.
  Sent count_and_take(std::size_t k) {
    if (counting == nullptr) counting = std::make_unique<Counting>(tile_count);
    Counting& c = *counting;
    std::uint32_t kth = kLikely;
    AboveAndTies counted = count_above(kth);
    if (kth == 0 || counted.above >= k || counted.above + counted.ties < k) {
      kth = find_kth_key(k);
      counted = count_above(kth);
    }
    const auto quota = kth == 0 ? 0 : static_cast<std::uint32_t>(k - counted.above);  // zeros are not sent
    take_winners<<<grid_of_tiles(), kTileThreads, 0, stream>>>(memory, size, kth, quota, c.above.data(), c.ties.data(),
                                                               c.above_before.data(), c.ties_before.data(),
                                                               out_indices.data(), out_values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(stream);
    queue_sum(tile_norms.data(), tile_count, group_norms.data(), c.norm.data(), stream);
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(c.host_norm.data(), c.norm.data(), sizeof(double), cudaMemcpyDeviceToHost, stream));
    set_guess(kth);
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
    mark_counted();
    return {.indices = out_indices.data(),
            .values = out_values.data(),
            .count = counted.above + quota,
            .kth = kth,
            .accumulated_norm2 = c.host_norm[0]};
  }

  void add_up(const DeviceArray<std::uint32_t>& numbers, DeviceArray<std::uint32_t>& before) {
    std::size_t bytes = counting->scan.size();
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(counting->scan.data(), bytes, numbers.data(), before.data(),
                                                        static_cast<std::int64_t>(numbers.size()), stream));
  }

  // The k-th key of this step is where the next one begins to guess.
  void set_guess(std::uint32_t kth) {
    has_guess = true;
    set_threshold<<<1, 1, 0, stream>>>(control.data(), std::max(kth, kLowestKey));
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  bool has_guess = false;
  std::unique_ptr<Counting> counting;
};

}  // namespace sparsewire::cuda
