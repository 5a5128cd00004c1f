// An uninitialised array that can grow: std::vector would first fill every new entry with zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "core/room.h"

namespace sparsewire {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  std::size_t capacity() const noexcept { return capacity_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }

  // Makes room for at least `capacity` entries; keeps the first `used`.
  void reserve(std::size_t capacity, std::size_t used = 0) {
    if (capacity <= capacity_) return;
    auto larger = std::make_unique_for_overwrite<T[]>(capacity);
    std::copy_n(data_.get(), used, larger.get());
    data_ = std::move(larger);
    capacity_ = capacity;
  }
  // The same, with room for a quarter more and 64 where it has to grow: what is needed changes a little in every step,
  // which must not allocate each time.
  void reserve_with_room(std::size_t capacity) {
    if (capacity > capacity_) reserve(with_room(capacity));
  }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t capacity_ = 0;
};

}  // namespace sparsewire
