// Reads and writes numbers in little-endian bytes, which is the byte order of every supported machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace sparsewire {

static_assert(std::endian::native == std::endian::little);

// Writes the number and advances the pointer.
template <class T>
void write_field(std::byte*& to, T number) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &number, sizeof(T));
  to += sizeof(T);
}

template <class T>
T read_field(const std::byte* from) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T number;
  std::memcpy(&number, from, sizeof(T));
  return number;
}

// Reads the next number and advances the pointer.
template <class T>
T next_field(const std::byte*& from) noexcept {
  const T number = read_field<T>(from);
  from += sizeof(T);
  return number;
}

}  // namespace sparsewire
