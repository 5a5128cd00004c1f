// A gradient as it comes out of the trainer: borrowed memory in one of three number formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsewire {

enum class Type : std::uint8_t { f32, bf16, f16 };

// Borrowed; must outlive the call it is passed to. bf16 and f16 are given as their 16-bit patterns.
//
// `scale` and `decay` say how it enters the memory: memory <- decay*memory + scale*gradient. A Sifter
// sets them from its feedback; who calls a Sparsifier directly sets them here.
struct Gradient {
  const void* data = nullptr;
  Type type = Type::f32;
  std::size_t size = 0;
  float scale = 1.0F;
  float decay = 1.0F;

  Gradient() = default;
  Gradient(const void* numbers, Type number_type, std::size_t count) noexcept
      : data(numbers), type(number_type), size(count) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a span of floats is a gradient.
  Gradient(std::span<const float> numbers) noexcept : data(numbers.data()), size(numbers.size()) {}
};

}  // namespace sparsewire
