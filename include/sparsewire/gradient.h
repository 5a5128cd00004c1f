// Arrays of numbers as the training code provides them: borrowed, in one of three formats, on the host or on a device.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

namespace sparsewire {

enum class NumberType : std::uint8_t { f32, bf16, f16 };

// Where an array lies. A build without CUDA refuses arrays on a device with a UsageError.
struct Device {
  enum Kind : std::uint8_t { host, cuda };
  Kind kind = host;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

// Contiguous floats: a span, a vector, an array.
template <class T>
concept FloatRange = std::ranges::contiguous_range<T> && std::same_as < std::remove_cv_t<std::ranges::range_value_t<T>>,
float > ;

// Borrowed; the data must outlive the call that it is passed to, or as long as that call says. bf16 and f16 are given
// as their 16-bit patterns.
struct Gradient {
  const void* data = nullptr;
  NumberType type = NumberType::f32;
  std::size_t size = 0;
  Device device = {};
  void* stream = nullptr;  // of the device, in whose order the data is ready; null on the host

  Gradient() = default;
  Gradient(const void* numbers, NumberType number_type, std::size_t count) noexcept
      : data(numbers), type(number_type), size(count) {}
  template <FloatRange Floats>
  // NOLINTNEXTLINE(google-explicit-constructor): an array of floats converts to a gradient.
  Gradient(const Floats& floats) noexcept : data(std::ranges::data(floats)), size(std::ranges::size(floats)) {}
};

// The same, to be written: an array that a call changes in place, such as Transport::all_reduce_sum.
struct WritableNumbers {
  void* data = nullptr;
  NumberType type = NumberType::f32;
  std::size_t size = 0;
  Device device = {};
  void* stream = nullptr;

  WritableNumbers() = default;
  WritableNumbers(void* numbers, NumberType number_type, std::size_t count) noexcept
      : data(numbers), type(number_type), size(count) {}
  template <FloatRange Floats>
  requires std::ranges::borrowed_range<Floats> && std::same_as < std::ranges::range_reference_t<Floats>,
  float& >
      // NOLINTNEXTLINE(google-explicit-constructor): an array of floats that may be changed converts to numbers.
      WritableNumbers(Floats&& floats) noexcept : data(std::ranges::data(floats)),
  size(std::ranges::size(floats)) {}

  std::size_t size_bytes() const noexcept { return size * (type == NumberType::f32 ? 4 : 2); }
};

}  // namespace sparsewire
