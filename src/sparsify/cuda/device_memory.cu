// An error memory on a GPU.
//
// A model that is one unit takes the fast way of kernels/cuda/unit_memory.h, and one whose units are no larger than a
// tile that of tile_units.cuh. All others take a few launches that serve all units: add the gradient, find the bar of
// each unit, count, and take out.
#include <cstring>
#include <cub/device/device_scan.cuh>
#include <string>

#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/tile_units.cuh"
#include "kernels/cuda/types.h"
#include "kernels/cuda/unit_memory.h"
#include "kernels/norm.h"
#include "sparsewire/errors.h"
#include "sparsify/cuda/device.h"
#include "sparsify/cuda/unit_table.cuh"
#include "sparsify/device_memory.h"

namespace sparsewire {
namespace cuda {
namespace {

using kernels::ScaledGradient;

constexpr unsigned long long kNoneBad = ~0ULL;

Factors factors_of(const ScaledGradient* gradient) {
  return gradient == nullptr ? Factors{} : Factors{gradient->scale, gradient->decay};
}
const void* data_of(const ScaledGradient* gradient) { return gradient == nullptr ? nullptr : gradient->data; }

unsigned blocks_for(std::size_t entries) {
  return static_cast<unsigned>(std::clamp<std::size_t>((entries + kEntryThreads - 1) / kEntryThreads, 1, 1U << 16U));
}

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(int device, std::size_t size) : device_(device), size_(size), numbers_(size), bad_(1) {
    host_bad_.reserve(1);
  }

  std::optional<std::size_t> take(std::span<const Unit> units, std::span<const UnitChoice> choices, float factor,
                                  const ScaledGradient* gradient, TakenEntries& taken) override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(gradient);
    taken.indices = {};
    taken.values = {};
    taken.kth = 0;
    taken.sent_norm2.clear();
    taken.ends.assign(units.size(), 0);
    taken.accumulated_norm2.assign(units.size(), 0);
    if (size_ == 0) return std::nullopt;
    const bool is_one = units.size() == 1 && units[0].segments.size() == 1 && (factor == 1 || choices[0].k == 0);
    return is_one ? take_from_one(choices[0], gradient, stream, taken)
                  : take_from_many(units, choices, factor, gradient, stream, taken);
  }

  // Waits, because the gradient may be another memory's numbers, which change next.
  void restore(const ScaledGradient& gradient) override {
    if (size_ == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = begin(&gradient);
    restore_all(gradient, stream);
    order_.end(stream);
    order_.wait();
  }

  double norm2(const ScaledGradient& gradient) override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(&gradient);
    const std::size_t tiles = kernels::tiles_of(gradient.size);
    if (tiles == 0) return 0;
    norms_.reserve(tiles);
    host_norms_.reserve(tiles);
    with_type(&gradient, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        square_tiles<T>
            <<<static_cast<unsigned>(tiles), kTileThreads, 0, stream>>>(gradient.data, gradient.size, norms_.data());
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(norms_.data(), host_norms_.data(), tiles, stream);
    finish(stream);
    return kernels::sum_tiles(host_norms_.data(), tiles);
  }

  float number_of(const ScaledGradient& gradient, std::size_t index) override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(&gradient);
    const std::size_t bytes = gradient.type == NumberType::f32 ? 4 : 2;
    std::uint32_t bits = 0;
    download(static_cast<const char*>(gradient.data) + index * bytes, reinterpret_cast<char*>(&bits), bytes, stream);
    finish(stream);
    return kernels::number_at(Gradient(&bits, gradient.type, 1), 0);
  }

  void take_at(std::span<const std::uint32_t> indices, bool zeros, float* values) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    const cudaStream_t stream = upload(indices, nullptr);
    take_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), indices_.data(),
                                                                           indices.size(), zeros, values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(values_.data(), host_values_.data(), indices.size(), stream);
    finish(stream);
    std::memcpy(values, host_values_.data(), indices.size() * sizeof(float));
  }

  void write_at(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    const cudaStream_t stream = upload(indices, values);
    write_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), indices_.data(),
                                                                            indices.size(), values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  void add_at(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    const cudaStream_t stream = upload(indices, values);
    add_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), indices_.data(),
                                                                          indices.size(), values_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  std::optional<std::size_t> add_sum(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return std::nullopt;
    const OnDevice on(device_);
    order_.wait();  // before_ may be in use
    before_.reserve(indices.size());
    const cudaStream_t stream = upload(indices, values);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(bad_.data(), 0xFF, sizeof(kNoneBad), stream));
    add_sum_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(
        numbers_.data(), indices_.data(), indices.size(), values_.data(), before_.data(), bad_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(bad_.data(), host_bad_.data(), 1, stream);
    finish(stream);
    if (host_bad_[0] == kNoneBad) return std::nullopt;
    const std::size_t bad = host_bad_[0];
    take_back_sum(indices);
    return bad;
  }

  void take_back_sum(std::span<const std::uint32_t> indices) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    const cudaStream_t stream = upload(indices, nullptr);
    write_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), indices_.data(),
                                                                            indices.size(), before_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  void clear() override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(nullptr);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(numbers_.data(), 0, size_ * sizeof(float), stream));
    order_.end(stream);
  }

  void read(std::size_t begin_at, std::span<float> numbers) const override {
    if (numbers.empty()) return;
    const OnDevice on(device_);
    order_.begin(order_.own());
    download(numbers_.data() + begin_at, numbers.data(), numbers.size(), order_.own());
    finish(order_.own());
  }

  void write(std::size_t begin_at, std::span<const float> numbers) override {
    if (numbers.empty()) return;
    const OnDevice on(device_);
    const cudaStream_t stream = begin(nullptr);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(numbers_.data() + begin_at, numbers.data(), numbers.size_bytes(),
                                          cudaMemcpyHostToDevice, stream));
    finish(stream);
  }

  Gradient numbers() const override {
    const OnDevice on(device_);
    order_.begin(order_.own());
    Gradient all(numbers_.data(), NumberType::f32, size_);
    all.device = {Device::cuda, device_};
    all.stream = order_.own();
    return all;
  }

 private:
  // The stream that the following work is queued on: that of the gradient, if there is one.
  cudaStream_t begin(const ScaledGradient* gradient) {
    if (gradient != nullptr && size_ > 0) check_array(gradient->data, gradient->device, device_);
    const cudaStream_t stream = gradient == nullptr ? order_.own() : static_cast<cudaStream_t>(gradient->stream);
    order_.begin(stream);
    return stream;
  }
  void finish(cudaStream_t stream) const {
    order_.end(stream);
    order_.wait();
  }
  template <class T>
  static void download(const T* from, T* to, std::size_t count, cudaStream_t stream) {
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  }

  // Copies entries to indices_ and values_; without values there is only room for them.
  cudaStream_t upload(std::span<const std::uint32_t> indices, const float* values) {
    order_.wait();  // the arrays may be in use
    const std::size_t n = indices.size();
    indices_.reserve(n);
    values_.reserve(n);
    host_indices_.reserve(n);
    host_values_.reserve(n);
    const cudaStream_t stream = begin(nullptr);
    std::memcpy(host_indices_.data(), indices.data(), indices.size_bytes());
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(indices_.data(), host_indices_.data(), indices.size_bytes(), cudaMemcpyHostToDevice, stream));
    if (values == nullptr) return stream;
    std::memcpy(host_values_.data(), values, n * sizeof(float));
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(values_.data(), host_values_.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
    return stream;
  }

  void restore_all(const ScaledGradient& gradient, cudaStream_t stream) {
    with_type(&gradient, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        restore_entries<T><<<blocks_for(size_), kEntryThreads, 0, stream>>>(numbers_.data(), gradient.data, size_,
                                                                            factors_of(&gradient));
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  // Copies the chosen entries to the host.
  void collect(const std::uint32_t* indices, const float* values, std::size_t count, cudaStream_t stream,
               TakenEntries& taken) {
    taken_indices_.reserve(count);
    taken_values_.reserve(count);
    if (count > 0) {
      download(indices, taken_indices_.data(), count, stream);
      download(values, taken_values_.data(), count, stream);
    }
    finish(stream);
    taken.indices = {taken_indices_.data(), count};
    taken.values = {taken_values_.data(), count};
  }

  std::optional<std::size_t> take_from_one(const UnitChoice& choice, const ScaledGradient* gradient,
                                           cudaStream_t stream, TakenEntries& taken) {
    if (unit_ == nullptr) {
      unit_ = std::make_unique<UnitMemory>(numbers_.data(), size_, std::max<std::size_t>(choice.k, size_ / 1000 + 1));
    }
    const Sent sent = step_of_one(choice, gradient, stream);
    if (sent.bad) {
      finish(stream);
      return sent.bad;
    }
    collect(sent.indices, sent.values, sent.count, stream, taken);
    taken.ends[0] = sent.count;
    taken.accumulated_norm2[0] = sent.accumulated_norm2;
    taken.sent_norm2.assign(1, sent.sent_norm2);
    taken.kth = sent.kth;
    if (choice.k > 0 && sent.count == choice.k && sent.kth == 0) {  // none was left out: the k-th is the smallest
      std::uint32_t least = kInfinityKey;
      for (const float value : taken.values) least = std::min(least, kernels::key_of(value));
      taken.kth = least;
    }
    return std::nullopt;
  }

  Sent step_of_one(const UnitChoice& choice, const ScaledGradient* gradient, cudaStream_t stream) {
    try {
      return choice.k > 0 ? unit_->top(gradient, choice.k, stream) : unit_->above(gradient, choice.threshold, stream);
    } catch (...) {  // out of memory: all sums are in the memory
      unit_.reset();
      if (gradient != nullptr) restore_all(*gradient, stream);
      order_.end(stream);
      throw;
    }
  }

  // Makes room for what a pass over these units needs.
  void reserve_for(std::span<const Unit> units) {
    table_.set_units(units);
    const std::size_t tiles = table_.tile_count();
    norms_.reserve(2 * tiles);  // of all entries, and of those that are sent
    host_norms_.reserve(2 * tiles);
    ends_.reserve(units.size() + 1);
    host_ends_.reserve(units.size() + 1);
    host_bars_.reserve(units.size());
    if (sent_.size() == tiles + 1) return;
    is_bad_.resize(tiles);
    for (DeviceArray<std::uint32_t>* one : {&above_, &ties_, &ties_before_, &sent_, &sent_before_})
      one->resize(tiles + 1);
    scan_bytes_ = 0;
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, sent_.data(), sent_before_.data(),
                                                        static_cast<int>(tiles + 1), nullptr));
    scan_.resize(scan_bytes_);
  }

  void add_up(const DeviceArray<std::uint32_t>& numbers, const DeviceArray<std::uint32_t>& before,
              cudaStream_t stream) {
    SPARSEWIRE_CUDA_CHECK(cub::DeviceScan::ExclusiveSum(scan_.data(), scan_bytes_, numbers.data(), before.data(),
                                                        static_cast<int>(table_.tile_count() + 1), stream));
  }

  std::optional<std::size_t> take_from_many(std::span<const Unit> units, std::span<const UnitChoice> choices,
                                            float factor, const ScaledGradient* gradient, cudaStream_t stream,
                                            TakenEntries& taken) {
    order_.wait();  // the tables may be in use
    reserve_for(units);
    table_.set_choices(choices, factor, stream);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(bad_.data(), 0xFF, sizeof(kNoneBad), stream));
    if (table_.is_one_tile_each()) return take_from_tiles(gradient, stream, taken);
    const std::uint32_t tiles = table_.tile_count();
    with_type(gradient, [&]<class T>(T*) {
      accumulate_tiles<T><<<tiles, kTileThreads, 0, stream>>>(numbers_.data(), data_of(gradient), factors_of(gradient),
                                                              table_.tiles(), table_.pieces(), norms_.data(),
                                                              is_bad_.data(), bad_.data());
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(bad_.data(), host_bad_.data(), 1, stream);
    if (table_.takes_any()) count(stream);
    download(norms_.data(), host_norms_.data(), tiles, stream);
    finish(stream);
    if (host_bad_[0] != kNoneBad) {
      restore_good_tiles(*gradient, stream);
      return host_bad_[0];
    }
    if (table_.takes_any()) {
      take_out(host_ends_[units.size() - 1], gradient, stream, taken);
      taken.ends.assign(host_ends_.data(), host_ends_.data() + units.size());
      for (std::size_t u = 0; u < units.size(); ++u) {
        if (choices[u].k > 0) taken.kth = std::max(host_bars_[u].rank, 1U) - 1;
      }
    }
    add_norms(taken);
    return std::nullopt;
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

  // All units have one tile: a step is one launch.
  std::optional<std::size_t> take_from_tiles(const ScaledGradient* gradient, cudaStream_t stream, TakenEntries& taken) {
    const std::uint32_t units = table_.unit_count();
    const std::size_t room = table_.host_slots().back();
    out_indices_.reserve(room);
    out_values_.reserve(room);
    taken_indices_.reserve(room);
    taken_values_.reserve(room);
    std::uint32_t* const few = ends_.data() + units;
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(few, 0, sizeof(*few), stream));
    const TileUnitsArguments arguments{.memory = numbers_.data(),
                                       .gradient = data_of(gradient),
                                       .by = factors_of(gradient),
                                       .tiles = table_.tiles(),
                                       .pieces = table_.pieces(),
                                       .bars = table_.bars(),
                                       .ks = table_.ks(),
                                       .slots = table_.slots(),
                                       .norms = norms_.data(),
                                       .sent_norms = norms_.data() + units,
                                       .is_bad = is_bad_.data(),
                                       .bad = bad_.data(),
                                       .counts = ends_.data(),
                                       .few_units = few,
                                       .indices = out_indices_.data(),
                                       .values = out_values_.data()};
    with_type(gradient, [&]<class T>(T*) { sift_tile_units<T><<<units, kTileThreads, 0, stream>>>(arguments); });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(bad_.data(), host_bad_.data(), 1, stream);
    download(norms_.data(), host_norms_.data(), 2 * std::size_t{units}, stream);
    download(ends_.data(), host_ends_.data(), std::size_t{units} + 1, stream);
    collect(out_indices_.data(), out_values_.data(), room, stream, taken);
    if (host_bad_[0] != kNoneBad) {
      put_tile_units_back<<<blocks_for(units), kEntryThreads, 0, stream>>>(
          numbers_.data(), units, table_.slots(), ends_.data(), out_indices_.data(), out_values_.data());
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
      restore_good_tiles(*gradient, stream);
      return host_bad_[0];
    }
    if (host_ends_[units] > 0) {
      close_gaps(taken);
    } else {
      taken.ends.assign(table_.host_slots().begin() + 1, table_.host_slots().end());
    }
    add_norms(taken);
    return std::nullopt;
  }

  // Some units had fewer than k entries, so that there are gaps behind these.
  void close_gaps(TakenEntries& taken) {
    std::size_t end = 0;
    for (std::size_t u = 0; u < table_.unit_count(); ++u) {
      const std::size_t from = table_.host_slots()[u];
      std::memmove(taken_indices_.data() + end, taken_indices_.data() + from, host_ends_[u] * sizeof(std::uint32_t));
      std::memmove(taken_values_.data() + end, taken_values_.data() + from, host_ends_[u] * sizeof(float));
      end += host_ends_[u];
      taken.ends[u] = end;
    }
    taken.indices = taken.indices.first(end);
    taken.values = taken.values.first(end);
  }

  // Finds the bar of each unit, and how many entries each tile sends.
  void count(cudaStream_t stream) {
    const std::uint32_t tiles = table_.tile_count();
    const std::uint32_t units = table_.unit_count();
    if (table_.has_k()) table_.select(numbers_.data(), stream);
    count_tiles<<<tiles, kTileThreads, 0, stream>>>(numbers_.data(), table_.tiles(), table_.pieces(), table_.bars(),
                                                    above_.data(), ties_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    add_up(ties_, ties_before_, stream);
    count_sent<<<blocks_for(tiles), kEntryThreads, 0, stream>>>(table_.tiles(), tiles, table_.units(), table_.bars(),
                                                                above_.data(), ties_.data(), ties_before_.data(),
                                                                sent_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    add_up(sent_, sent_before_, stream);
    find_ends<<<blocks_for(units), kEntryThreads, 0, stream>>>(table_.units(), units, sent_before_.data(),
                                                               ends_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    download(ends_.data(), host_ends_.data(), units, stream);
    download(static_cast<const Bar*>(table_.bars()), host_bars_.data(), units, stream);
  }

  void take_out(std::size_t total, const ScaledGradient* gradient, cudaStream_t stream, TakenEntries& taken) {
    try {
      out_indices_.reserve(total);
      out_values_.reserve(total);
      taken_indices_.reserve(total);
      taken_values_.reserve(total);
    } catch (...) {
      if (gradient != nullptr) restore_good_tiles(*gradient, stream);
      throw;
    }
    if (total > 0) {
      take_tiles<<<table_.tile_count(), kTileThreads, 0, stream>>>(
          numbers_.data(), table_.tiles(), table_.pieces(), table_.units(), table_.bars(), ties_before_.data(),
          sent_before_.data(), out_indices_.data(), out_values_.data(), norms_.data() + table_.tile_count());
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    } else {
      SPARSEWIRE_CUDA_CHECK(
          cudaMemsetAsync(norms_.data() + table_.tile_count(), 0, table_.tile_count() * sizeof(double), stream));
    }
    download(norms_.data() + table_.tile_count(), host_norms_.data() + table_.tile_count(), table_.tile_count(),
             stream);
    collect(out_indices_.data(), out_values_.data(), total, stream, taken);
  }

  void restore_good_tiles(const ScaledGradient& gradient, cudaStream_t stream) {
    with_type(&gradient, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        restore_tiles<T><<<table_.tile_count(), kTileThreads, 0, stream>>>(
            numbers_.data(), gradient.data, factors_of(&gradient), table_.tiles(), table_.pieces(), is_bad_.data());
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    finish(stream);
  }

  int device_;
  std::size_t size_;
  StreamOrder order_;
  DeviceArray<float> numbers_;
  DeviceArray<unsigned long long> bad_;  // the lowest index with a sum that is not finite
  PinnedArray<unsigned long long> host_bad_;

  // Entries on their way to the device, or from it.
  DeviceArray<std::uint32_t> indices_;
  DeviceArray<float> values_;
  PinnedArray<std::uint32_t> host_indices_;
  PinnedArray<float> host_values_;
  DeviceArray<float> before_;  // of add_sum()

  PinnedArray<std::uint32_t> taken_indices_;
  PinnedArray<float> taken_values_;
  std::unique_ptr<UnitMemory> unit_;  // if the model is one unit

  // If it is many.
  UnitTable table_;
  DeviceArray<double> norms_;  // of tiles
  PinnedArray<double> host_norms_;
  DeviceArray<std::uint8_t> is_bad_;
  DeviceArray<std::uint32_t> above_, ties_, ties_before_, sent_, sent_before_;
  DeviceArray<char> scan_;
  std::size_t scan_bytes_ = 0;
  DeviceArray<std::uint32_t> ends_;  // of units
  PinnedArray<std::uint32_t> host_ends_;
  PinnedArray<Bar> host_bars_;
  DeviceArray<std::uint32_t> out_indices_;
  DeviceArray<float> out_values_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<DeviceMemory> make_device_memory(Device device, std::size_t size) {
  cuda::check_device(device);
  const cuda::OnDevice on(device.index);
  return std::make_unique<cuda::CudaMemory>(device.index, size);
}

}  // namespace sparsewire
