// An error memory on a GPU.
//
// A model that is one unit takes the fast way of kernels/cuda/unit_memory.h, all others that of many_units.cuh.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/unit_memory.h"
#include "kernels/norm.h"
#include "sparsewire/errors.h"
#include "sparsify/cuda/device.h"
#include "sparsify/cuda/many_units.cuh"
#include "sparsify/device_memory.h"

namespace sparsewire {
namespace cuda {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The largest magnitude; infinity if there is a NaN.
double largest(const float* values, std::size_t n) {
  std::uint32_t key = 0;
  for (std::size_t i = 0; i < n; ++i) key = std::max(key, kernels::key_of(values[i]));
  return key >= kInfinityKey ? kInfinity : std::bit_cast<float>(key);
}

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(int device, std::size_t size) : device_(device), size_(size), numbers_(size), bad_(1) {
    host_bad_.reserve(1);
  }

  std::optional<std::size_t> take(std::span<const Unit> units, const UnitChoices& choices, float factor,
                                  const kernels::SecondChoice* second, const ScaledGradient* gradient,
                                  TakenEntries& taken) override {
    const OnDevice on(device_);
    most_ = kInfinity;  // unless all goes well
    const cudaStream_t stream = begin(gradient);
    if (gradient != nullptr && gradient->first_add != nullptr) follow(gradient->first_add->gradient, stream);
    const auto bad = take_now(units, choices, factor, second, gradient, stream, taken);
    // No number is larger than the norm of all sums.
    const std::vector<double>& norms = taken.accumulated_norm2;
    if (!bad) most_ = with_rounding(std::sqrt(std::accumulate(norms.begin(), norms.end(), 0.0)));
    return bad;
  }

  Gradient take_all() override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(nullptr);
    all_taken_.reserve(size_);
    copy(numbers_.data(), all_taken_.data(), stream);
    SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(numbers_.data(), 0, size_ * sizeof(float), stream));
    order_.end(stream);
    most_ = 0;
    return array(all_taken_);
  }
  void put_all_back() override {
    const OnDevice on(device_);
    most_ = kInfinity;
    const cudaStream_t stream = begin(nullptr);
    copy(all_taken_.data(), numbers_.data(), stream);
    order_.end(stream);
  }

  // Waits, because the gradient may be another memory's numbers, which change next.
  void restore(const ScaledGradient& gradient) override {
    if (size_ == 0) return;
    const OnDevice on(device_);
    most_ = kInfinity;
    const cudaStream_t stream = begin(&gradient);
    restore_all(gradient, stream);
    order_.end(stream);
    order_.wait();
  }

  double norm2(const ScaledGradient& gradient) override {
    const OnDevice on(device_);
    const cudaStream_t stream = begin(&gradient);
    if (gradient.size == 0) return 0;
    return norm_of(gradient, nullptr, stream).norm2;
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
    const cudaStream_t stream = give(indices, nullptr);
    given_.values.reserve(indices.size());
    take_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), given_.indices.data(),
                                                                           indices.size(), zeros, given_.values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    finish(stream);
    std::memcpy(values, given_.values.data(), indices.size() * sizeof(float));
  }

  void write_at(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    most_ = std::max(most_, largest(values, indices.size()));
    const cudaStream_t stream = give(indices, values);
    write_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), given_.indices.data(),
                                                                            indices.size(), given_.values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  void add_at(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return;
    const OnDevice on(device_);
    most_ = with_rounding(most_ + largest(values, indices.size()));
    const cudaStream_t stream = give(indices, values);
    add_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), given_.indices.data(),
                                                                          indices.size(), given_.values.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  std::optional<std::size_t> add_sum(std::span<const std::uint32_t> indices, const float* values) override {
    if (indices.empty()) return std::nullopt;
    const OnDevice on(device_);
    order_.wait();  // before_ may be in use
    before_.reserve(indices.size());
    most_ = with_rounding(most_ + largest(values, indices.size()));
    const bool may_overflow = !(most_ < std::numeric_limits<float>::max());
    const cudaStream_t stream = give(indices, values);
    if (may_overflow) SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(bad_.data(), 0xFF, sizeof(kNoneBad), stream));
    add_sum_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(
        numbers_.data(), given_.indices.data(), indices.size(), given_.values.data(), before_.data(), bad_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    if (!may_overflow) {
      order_.end(stream);
      return std::nullopt;
    }
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
    const cudaStream_t stream = give(indices, nullptr);
    write_entries<<<blocks_for(indices.size()), kEntryThreads, 0, stream>>>(numbers_.data(), given_.indices.data(),
                                                                            indices.size(), before_.data());
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    order_.end(stream);
  }

  void clear() override {
    const OnDevice on(device_);
    most_ = 0;
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
    most_ = std::max(most_, largest(numbers.data(), numbers.size()));
    const cudaStream_t stream = begin(nullptr);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(numbers_.data() + begin_at, numbers.data(), numbers.size_bytes(),
                                          cudaMemcpyHostToDevice, stream));
    finish(stream);
  }

  Gradient numbers() const override {
    const OnDevice on(device_);
    most_ = kInfinity;  // who gets them may change them (ScaledGradient::first_add)
    order_.begin(order_.own());
    return array(numbers_);
  }

 private:
  // `size_` numbers, on this memory's own stream.
  Gradient array(const DeviceArray<float>& numbers) const {
    Gradient all(numbers.data(), NumberType::f32, size_);
    all.device = {Device::cuda, device_};
    all.stream = order_.own();
    return all;
  }
  void copy(const float* from, float* to, cudaStream_t stream) const {
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, size_ * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  }

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
  // Copies entries to where the device can read them, and returns the stream for that. There may be no values.
  cudaStream_t give(std::span<const std::uint32_t> indices, const float* values) {
    order_.wait();  // those before may be in use
    given_.set(indices, {values, values == nullptr ? 0 : indices.size()});
    return begin(nullptr);
  }

  std::optional<std::size_t> take_now(std::span<const Unit> units, const UnitChoices& choices, float factor,
                                      const kernels::SecondChoice* second, const ScaledGradient* gradient,
                                      cudaStream_t stream, TakenEntries& taken) {
    begin_taken(taken, units.size());
    if (size_ == 0) return std::nullopt;
    const bool is_one = units.size() == 1 && units[0].segments.size() == 1 && (factor == 1 || choices.all()[0].k == 0);
    if (is_one) return take_from_one(choices.all()[0], second, gradient, stream, taken);
    if (gradient != nullptr && gradient->first_add != nullptr) add_first(*gradient, stream);
    if (many_ == nullptr) many_ = std::make_unique<ManyUnits>(taken_);
    order_.wait();  // its arrays may be in use
    const auto bad = many_->take(numbers_.data(), units, choices, factor, second, gradient, stream, taken);
    order_.end(stream);
    return bad;
  }

  // What there is of each unit is written when it is known, in every step: so this need not go through them.
  static void begin_taken(TakenEntries& taken, std::size_t units) {
    taken.indices = {};
    taken.values = {};
    taken.kth = 0;
    taken.chosen_twice = false;
    taken.ends.resize(units);
    taken.accumulated_norm2.resize(units);
  }

  // What is queued on `stream` comes after what is queued on that of the gradient.
  void follow(const ScaledGradient& gradient, cudaStream_t stream) {
    const cudaStream_t first = begin(&gradient);
    order_.end(first);
    order_.begin(stream);
  }
  // Waits for the norm.
  Clipped norm_of(const ScaledGradient& gradient, const kernels::Clip* clip, cudaStream_t stream) {
    norm_.queue(gradient, clip, stream);
    host_norm_.reserve(1);
    download(norm_.data(), host_norm_.data(), 1, stream);
    finish(stream);
    return host_norm_[0];
  }
  // The gradient is another memory, to which something is added first.
  void add_first(const ScaledGradient& gradient, cudaStream_t stream) {
    const ScaledGradient& first = gradient.first_add->gradient;
    const Clipped clipped = norm_of(first, &gradient.first_add->clip, stream);
    if (clipped.may_overflow != 0) throw MayOverflow();
    with_type(&first, [&]<class T>(T*) {
      if constexpr (!std::is_void_v<T>) {
        accumulate_entries<T><<<blocks_for(size_), kEntryThreads, 0, stream>>>(
            static_cast<float*>(const_cast<void*>(gradient.data)), first.data, size_, {clipped.scale, first.decay});
      }
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    gradient.first_add->is_added = true;
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

  std::optional<std::size_t> take_from_one(const UnitChoice& choice, const kernels::SecondChoice* second,
                                           const ScaledGradient* gradient, cudaStream_t stream, TakenEntries& taken) {
    if (unit_ == nullptr) {
      unit_ = std::make_unique<UnitMemory>(numbers_.data(), size_, std::max<std::size_t>(choice.k, size_ / 1000 + 1));
    }
    taken_.reserve(choice.k);  // while it may still fail
    const Sent sent = step_of_one(choice, second, gradient, stream, taken.chosen_twice);
    if (sent.may_overflow) {
      finish(stream);
      throw MayOverflow();
    }
    if (sent.bad) {
      finish(stream);
      return sent.bad;
    }
    taken_.reserve(sent.count);
    download(sent.indices, taken_.indices.data(), sent.count, stream);
    download(sent.values, taken_.values.data(), sent.count, stream);
    finish(stream);
    taken.indices = {taken_.indices.data(), sent.count};
    taken.values = {taken_.values.data(), sent.count};
    taken.ends[0] = sent.count;
    taken.accumulated_norm2[0] = sent.accumulated_norm2;
    taken.kth = sent.kth;
    if (!taken.chosen_twice && choice.k > 0 && sent.count == choice.k &&
        sent.kth == 0) {  // none was left out: the k-th is the smallest
      std::uint32_t least = kInfinityKey;
      for (const float value : taken.values) least = std::min(least, kernels::key_of(value));
      taken.kth = least;
    }
    return std::nullopt;
  }

  Sent step_of_one(const UnitChoice& choice, const kernels::SecondChoice* second, const ScaledGradient* gradient,
                   cudaStream_t stream, bool& chosen_twice) {
    try {
      if (second != nullptr && choice.second_k > 0) {
        const auto sent = unit_->top(gradient, choice.k, choice.second_k, *second, stream);
        chosen_twice = sent.has_value();
        // By magnitude then, among the sums.
        return sent ? *sent : unit_->top(nullptr, choice.k, stream);
      }
      return choice.k > 0 ? unit_->top(gradient, choice.k, stream) : unit_->above(gradient, choice.threshold, stream);
    } catch (...) {  // out of memory: either nothing has happened, or all sums are in the memory
      const bool has_added = unit_->has_added();
      unit_.reset();
      if (gradient != nullptr && has_added) restore_all(*gradient, stream);
      order_.end(stream);
      throw;
    }
  }

  // A bound that holds after a rounding, or after a sum of squares.
  static double with_rounding(double bound) { return bound * (1 + 1e-6); }

  int device_;
  std::size_t size_;
  mutable double most_ = 0;  // no number is larger, as far as is known on the host
  StreamOrder order_;
  DeviceArray<float> numbers_;
  DeviceArray<unsigned long long> bad_;  // the lowest index with a sum that is not finite
  PinnedArray<unsigned long long> host_bad_;

  HostEntries given_;          // entries for the device
  DeviceArray<float> before_;  // of add_sum()

  GradientNorm norm_;
  PinnedArray<Clipped> host_norm_;
  HostEntries taken_;                 // entries from the device
  std::unique_ptr<UnitMemory> unit_;  // if the model is one unit
  std::unique_ptr<ManyUnits> many_;   // if it is many
  DeviceArray<float> all_taken_;      // by the last take_all()
};

}  // namespace
}  // namespace cuda

std::unique_ptr<DeviceMemory> make_device_memory(Device device, std::size_t size) {
  cuda::check_device(device);
  const cuda::OnDevice on(device.index);
  return std::make_unique<cuda::CudaMemory>(device.index, size);
}

}  // namespace sparsewire
