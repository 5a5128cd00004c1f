// What an ErrorMemory does to single entries and to all of them, on the host and on a device; and moving between them.
#include <algorithm>
#include <atomic>
#include <utility>

#include "core/slices.h"
#include "sparsify/error_memory.h"

namespace sparsewire {
namespace {

constexpr std::size_t kEntries = 8192;  // that are worth a thread

// Calls work(i) for the number of each entry.
template <class Work>
void for_each_entry(Pool* pool, std::size_t n, Work work) {
  for_each_slice(pool, n, kEntries, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) work(i);
  });
}

}  // namespace

void ErrorMemory::move_to(Device device) {
  if (device.kind == Device::host) device.index = 0;
  if (device == place_) return;
  if (device.kind == Device::host) {
    LongVector numbers(size_);
    device_->read(0, numbers);
    memory_.swap(numbers);
    device_.reset();
    LongVector().swap(copy_);
  } else {
    auto there = make_device_memory(device, size_);
    there->write(0, numbers());
    device_ = std::move(there);
    LongVector().swap(memory_);
  }
  place_ = device;
}

void ErrorMemory::put_back(const SparseVector& entries, std::span<const float> values) {
  if (!is_on_device()) {
    for_each_entry(pool_, entries.size(), [&](std::size_t i) { memory_[entries.index(i)] = values[i]; });
  } else if (entries.is_full()) {
    device_->write(0, values);
  } else {
    device_->write_at(entries.indices, values.data());
  }
}

std::optional<std::size_t> ErrorMemory::add_sum(const SparseVector& sum) {
  if (is_on_device()) return device_->add_sum(indices_of(sum), sum.values.data());
  before_sum_.resize(sum.size());
  std::atomic<bool> finite = true;
  for_each_slice(pool_, sum.size(), kEntries, [&](std::size_t begin, std::size_t end, int) {
    bool all = true;
    for (std::size_t i = begin; i < end; ++i) {
      float& number = memory_[sum.index(i)];
      before_sum_[i] = number;
      number += sum.values[i];
      all &= kernels::key_of(number) < kernels::kInfinityKey;
    }
    if (!all) finite = false;
  });
  if (finite) return std::nullopt;
  std::optional<std::size_t> bad;
  for (std::size_t i = 0; i < sum.size() && !bad; ++i) {
    if (kernels::key_of(memory_[sum.index(i)]) >= kernels::kInfinityKey) bad = sum.index(i);
  }
  take_back_sum(sum);
  return bad;
}

void ErrorMemory::take_back_sum(const SparseVector& sum) {
  if (is_on_device()) return device_->take_back_sum(indices_of(sum));
  for_each_entry(pool_, sum.size(), [&](std::size_t i) { memory_[sum.index(i)] = before_sum_[i]; });
}

// On a device every sum has its indices; a full one is rare there.
std::span<const std::uint32_t> ErrorMemory::indices_of(const SparseVector& entries) {
  if (!entries.is_full()) return entries.indices;
  positions_.resize(entries.size());
  for (std::size_t i = 0; i < positions_.size(); ++i) positions_[i] = static_cast<std::uint32_t>(i);
  return positions_;
}

void ErrorMemory::add_differences(const SparseVector& sent, std::span<const float> received) {
  const float* const values = sent.values.data();
  if (is_on_device()) {
    before_sum_.resize(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) before_sum_[i] = values[i] - received[i];
    device_->add_at(indices_of(sent), before_sum_.data());
  } else if (sent.is_full()) {
    for_each_entry(pool_, sent.size(), [&](std::size_t i) { memory_[i] += values[i] - received[i]; });
  } else {
    for_each_entry(pool_, sent.size(), [&](std::size_t i) { memory_[sent.indices[i]] += values[i] - received[i]; });
  }
}

void ErrorMemory::clear_at(const SparseVector& entries, std::vector<float>& old) {
  old.resize(entries.size());
  if (!is_on_device()) {
    for_each_entry(pool_, entries.size(),
                   [&](std::size_t i) { old[i] = std::exchange(memory_[entries.index(i)], 0.0F); });
  } else if (entries.is_full()) {
    device_->read(0, old);
    device_->clear();
  } else {
    device_->take_at(entries.indices, /*zeros=*/true, old.data());
  }
}

void ErrorMemory::clear() {
  if (is_on_device()) return device_->clear();
  for_each_slice(pool_, size_, kGrain, [&](std::size_t begin, std::size_t end, int) {
    std::fill(memory_.data() + begin, memory_.data() + end, 0.0F);
  });
}

void ErrorMemory::read(std::size_t begin, std::span<float> numbers) const {
  if (is_on_device()) return device_->read(begin, numbers);
  std::copy_n(memory_.data() + begin, numbers.size(), numbers.data());
}

void ErrorMemory::write(std::size_t begin, std::span<const float> numbers) {
  if (is_on_device()) return device_->write(begin, numbers);
  std::copy(numbers.begin(), numbers.end(), memory_.data() + begin);
}

float ErrorMemory::at(std::size_t index) const {
  float number = 0;
  read(index, {&number, 1});
  return number;
}

std::span<const float> ErrorMemory::numbers() const {
  if (!is_on_device()) return memory_;
  copy_.resize(size_);
  device_->read(0, copy_);
  return copy_;
}

Gradient ErrorMemory::as_gradient() const { return is_on_device() ? device_->numbers() : Gradient(memory_); }

float ErrorMemory::number_of(const kernels::ScaledGradient& gradient, std::size_t index) const {
  return is_on_device() ? device_->number_of(gradient, index) : kernels::number_at(gradient, index);
}

}  // namespace sparsewire
