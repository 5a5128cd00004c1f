// Saved state: named fields, a version, a checksum. In each class one function, `serialize`, both saves and restores,
// so the two cannot get out of step. docs/state_format.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sparsewire/layout.h"

namespace sparsewire {

class State {
 public:
  // A state to be written.
  State();
  // A state to be read; `bytes` are borrowed. Throws UsageError if they are not a complete and undamaged state.
  explicit State(std::span<const std::byte> bytes);

  bool saving() const noexcept { return saving_; }

  // Each call writes the field, or reads the next field. Throws UsageError if the next field has another name or a
  // wrong size.
  template <class T>
  void value(std::string_view name, T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    field(name, std::as_writable_bytes(std::span(&value, 1)));
  }
  template <class T, class Allocator>
  void array(std::string_view name, std::vector<T, Allocator>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!saving_) values.resize(next_size(name, sizeof(T)));
    field(name, std::as_writable_bytes(std::span(values)));
  }
  void string(std::string_view name, std::string& value);
  void flag(std::string_view name, bool& value);

  // Set if the tensors are in another order now than when the state was saved: the new flat index of the entry that had
  // `index`, or nothing if its tensor no longer exists. Null if all indices are the same.
  std::function<std::optional<std::uint32_t>(std::uint32_t index)> remap_index;

  // The finished bytes of a written state.
  std::vector<std::byte> bytes() &&;
  // Throws UsageError if a field was not read.
  void finish() const;

 private:
  void field(std::string_view name, std::span<std::byte> data);
  // The number of items of `item` bytes each in the next field, which must be called `name`.
  std::size_t next_size(std::string_view name, std::size_t item) const;
  std::uint64_t read_header(std::string_view name, std::size_t& at) const;

  bool saving_;
  std::vector<std::byte> written_;
  std::span<const std::byte> unread_;
};

// Writes the tensors of `layout`, or reads the layout that was saved. Throws UsageError.
Layout serialize_layout(State& state, const Layout& layout);

}  // namespace sparsewire
