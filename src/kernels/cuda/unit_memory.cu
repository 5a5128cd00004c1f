#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cub/device/device_scan.cuh>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/last_round.h"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/pass.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/search.cuh"
#include "kernels/cuda/types.h"
#include "kernels/cuda/unit_memory.h"

namespace sparsewire::cuda {
namespace {

using kernels::ScaledGradient;

// How many candidates a guessed threshold should give: as TopSelector has it.
std::size_t wanted(std::size_t k) {
  const auto count = static_cast<double>(k);
  return static_cast<std::size_t>(count + std::max(0.12 * count, 4 * std::sqrt(count) + 8));
}

__global__ void set_threshold(Control* control, std::uint32_t key) {
  control->threshold = key;
  control->margin = 0.01F;
}

}  // namespace

// What a search by counting needs.
struct Counting {
  explicit Counting(std::size_t tiles)
      : bins(kBins), above(tiles), ties(tiles), above_before(tiles), ties_before(tiles) {
    host_bins.reserve(kBins);
    host_norms.reserve(2);
    norms.resize(2);
    std::size_t bytes = 0;
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, above.data(), above_before.data(),
                                                        static_cast<std::int64_t>(tiles), nullptr));
    scan.resize(bytes);
  }

  DeviceArray<std::uint32_t> bins, above, ties, above_before, ties_before;
  PinnedArray<std::uint32_t> host_bins;
  DeviceArray<double> norms;
  PinnedArray<double> host_norms;
  DeviceArray<char> scan;
};

struct UnitMemory::Parts {
  Parts(float* numbers, std::size_t entries, std::size_t most_entries)
      : size(entries), tile_count(kernels::tiles_of(entries)), memory(numbers) {
    if (numbers == nullptr) {
      owned.resize(size);
      memory = owned.data();
    }
    control.resize(1);
    begin_anew<<<1, kArenas>>>(control.data());
    set_threshold<<<1, 1>>>(control.data(), kLowestKey);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    tiles.resize(tile_count);
    fine.resize(kFine);
    const std::size_t groups = (tile_count + kTile - 1) / kTile;
    for (DeviceArray<double>* one : {&tile_norms, &sent_norms}) one->resize(tile_count);
    for (DeviceArray<double>* one : {&group_norms, &sent_group_norms}) one->resize(groups);
    group_counts.resize(groups);
    reserve(most_entries);
    SPARSEWIRE_CUDA_CHECK(cudaHostAlloc(&result, sizeof(PublishedResult), cudaHostAllocMapped));
    new (result) PublishedResult;
    SPARSEWIRE_CUDA_CHECK(cudaHostGetDevicePointer(&result_on_device, result, 0));
    configure();
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(nullptr));  // other streams do not wait for this one
  }
  ~Parts() { cudaFreeHost(result); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // Twice as many candidates as a guess should give, and room for a whole tile in each arena.
  void reserve(std::size_t entries) {
    most = entries;
    arena_size = static_cast<std::uint32_t>(std::min(2 * wanted(entries), size) / kArenas + kTile);
    indices.resize(std::size_t{arena_size} * kArenas);
    values.resize(std::size_t{arena_size} * kArenas);
    out_indices.resize(indices.size());  // of a threshold, every candidate is sent
    out_values.resize(indices.size());
  }

  // What `finish` has to know: the same number of blocks for all of its variants.
  void configure() {
    int device = 0;
    int processors = 0;
    SPARSEWIRE_CUDA_CHECK(cudaGetDevice(&device));
    SPARSEWIRE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    const int in_each = std::min({configure_finish<By::magnitude>(), configure_finish<By::draw>(),
                                  configure_finish<By::score>(), configure_finish<By::all>()});
    const std::size_t fit =
        std::min<std::size_t>(static_cast<std::size_t>(processors) * static_cast<std::size_t>(in_each), kMostBlocks);
    const std::size_t useful = std::max<std::size_t>(1, (tile_count + 15) / 16);
    blocks = static_cast<unsigned>(std::min(fit, useful));
    tiles_per_block = static_cast<std::uint32_t>((tile_count + blocks - 1) / blocks);
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
    FinishArguments arguments{.memory = memory,
                              .tiles_count = tile_count,
                              .tiles_per_block = tiles_per_block,
                              .control = control.data(),
                              .tiles = tiles.data(),
                              .tile_norms = tile_norms.data(),
                              .group_norms = group_norms.data(),
                              .sent_norms = sent_norms.data(),
                              .sent_group_norms = sent_group_norms.data(),
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
      queue_finish<By::all>(arguments);
    } else if (second == nullptr) {
      queue_finish<By::magnitude>(arguments);
    } else if (second->draw) {
      arguments.k_drawn = static_cast<std::uint32_t>(second_k);
      arguments.draw = *second->draw;
      queue_finish<By::draw>(arguments);
    } else {
      last_round.upload(second->last_round, stream);
      arguments.scores = {*second->regularisation, last_round.data(),
                          static_cast<std::uint32_t>(second->last_round.size())};
      queue_finish<By::score>(arguments);
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
  void queue_finish(const FinishArguments& arguments) {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;  // launched while the pass still runs
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;  // barriers of all blocks need all blocks to run
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
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
            .accumulated_norm2 = from.accumulated_norm2,
            .sent_norm2 = from.sent_norm2};
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

  // Makes room for `room` entries, and sees to it that there is a guess of the k-th.
  void begin_top(const ScaledGradient* gradient, std::size_t k, std::size_t room, void* on) {
    stream = static_cast<cudaStream_t>(on);
    has_added = false;
    if (room > most) {
      SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
      reserve(room);
    }
    if (!has_guess) estimate_threshold(gradient, k);
    has_guess = true;
  }

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
    take_winners<<<grid_of_tiles(), kTileThreads, 0, stream>>>(
        memory, size, kth, quota, c.above.data(), c.ties.data(), c.above_before.data(), c.ties_before.data(),
        out_indices.data(), out_values.data(), sent_norms.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    mark_on_device(stream);
    queue_sum(tile_norms.data(), tile_count, group_norms.data(), c.norms.data(), stream);
    queue_sum(sent_norms.data(), tile_count, sent_group_norms.data(), c.norms.data() + 1, stream);
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(c.host_norms.data(), c.norms.data(), 2 * sizeof(double), cudaMemcpyDeviceToHost, stream));
    set_guess(kth);
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
    mark_counted();
    return {.indices = out_indices.data(),
            .values = out_values.data(),
            .count = counted.above + quota,
            .kth = kth,
            .accumulated_norm2 = c.host_norms[0],
            .sent_norm2 = c.host_norms[1]};
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

  Factors factors(const ScaledGradient* gradient) const {
    return gradient == nullptr ? Factors{} : Factors{gradient->scale, gradient->decay};
  }
  unsigned grid_of_tiles() const { return grid(tile_count); }
  static unsigned grid(std::size_t n) { return static_cast<unsigned>(n); }

  std::size_t size;
  std::size_t tile_count;
  std::size_t most = 0;
  std::uint32_t arena_size = 0;
  unsigned blocks = 0;
  std::uint32_t tiles_per_block = 0;
  cudaStream_t stream = nullptr;
  std::uint32_t epoch = 0;
  bool has_guess = false;
  bool has_added = false;             // the pass of the last step is queued
  PublishedResult* result = nullptr;  // on the host
  PublishedResult* result_on_device = nullptr;
  DeviceArray<float> owned;
  float* memory;
  DeviceArray<Control> control;
  DeviceArray<TileList> tiles;
  DeviceArray<std::uint32_t> fine;
  DeviceArray<double> tile_norms, group_norms, sent_norms, sent_group_norms;
  DeviceArray<std::uint32_t> group_counts;
  DeviceArray<std::uint32_t> indices, out_indices, sampled;
  std::unique_ptr<Counting> counting;
  LastRoundOnDevice last_round;
  GradientNorm norm;  // of what is added to a velocity first
  DeviceArray<float> values, out_values;
};

UnitMemory::UnitMemory(std::size_t size, std::size_t most) : UnitMemory(nullptr, size, most) {}
UnitMemory::UnitMemory(float* numbers, std::size_t size, std::size_t most)
    : parts_(std::make_unique<Parts>(numbers, size, most)) {}
UnitMemory::~UnitMemory() = default;

void UnitMemory::queue_top(const ScaledGradient* gradient, std::size_t k, void* stream) {
  Parts& p = *parts_;
  p.begin_top(gradient, k, k, stream);
  p.queue(gradient, k, 0);
}

std::optional<Sent> UnitMemory::top(const ScaledGradient* gradient, std::size_t k, std::size_t second_k,
                                    const kernels::SecondChoice& second, void* stream) {
  Parts& p = *parts_;
  // Of those that are chosen by scores the first choice has more, and a guess of its own.
  const std::size_t guessed = second.draw ? k : second_k;
  p.begin_top(gradient, guessed, k, stream);
  if (!second.draw) p.last_round.reserve(second.last_round.size());
  p.queue(gradient, guessed, 0, &second, second_k);
  const StepResult result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  p.put_all_back();
  p.has_guess = false;
  return std::nullopt;
}

void UnitMemory::queue_above(const ScaledGradient* gradient, std::uint32_t threshold, void* stream) {
  parts_->stream = static_cast<cudaStream_t>(stream);
  parts_->has_added = false;
  parts_->queue(gradient, 0, threshold);
}

std::optional<Sent> UnitMemory::wait() {
  const StepResult result = parts_->wait();
  if (result.outcome != kDone) return std::nullopt;
  return parts_->sent(result);
}

Sent UnitMemory::top(const ScaledGradient* gradient, std::size_t k, void* stream) {
  Parts& p = *parts_;
  queue_top(gradient, k, stream);
  StepResult result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  // The guess was wrong. A sample of the sums, which are in the memory now, gives a better one.
  p.put_all_back();
  p.estimate_threshold(nullptr, k);
  p.queue_second(k);
  result = p.wait();
  if (result.outcome == kDone) return p.sent(result);
  p.put_all_back();
  return p.count_and_take(k);
}

Sent UnitMemory::above(const ScaledGradient* gradient, std::uint32_t threshold, void* stream) {
  Parts& p = *parts_;
  queue_above(gradient, threshold, stream);
  StepResult result = p.wait();
  if ((result.outcome & (kNotFinite | kMayOverflow)) != 0) return p.fail(*gradient, result);
  while (result.outcome != kDone) {  // more than there is room for
    p.put_all_back();
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(p.stream));
    p.reserve(std::min(p.size, std::max<std::size_t>(2 * p.most, result.found)));
    p.queue(nullptr, 0, threshold);
    result = p.wait();
  }
  return p.sent(result);
}

bool UnitMemory::has_added() const noexcept { return parts_->has_added; }
void UnitMemory::forget_guess() { parts_->has_guess = false; }
float* UnitMemory::data() noexcept { return parts_->memory; }
std::size_t UnitMemory::size() const noexcept { return parts_->size; }

}  // namespace sparsewire::cuda
