// Saved state: named fields, a version, a checksum. One function per class both saves and restores (`serialize`), so
// the two cannot drift apart. The bytes are described in docs/state_format.md.
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
  // A state to be read; `bytes` are borrowed. Throws UsageError if they are not one, whole and unharmed.
  explicit State(std::span<const std::byte> bytes);

  bool saving() const noexcept { return saving_; }

  // Each call writes the field, or reads the next field, which must have that name and a fitting size.
  // Throws UsageError.
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

  // When the tensors lie elsewhere now than when the state was saved: where flat index `index` went, or nothing if its
  // tensor is gone. Null when nothing moved.
  std::function<std::optional<std::uint32_t>(std::uint32_t index)> remap_index;

  // The finished bytes of a written state.
  std::vector<std::byte> bytes() &&;
  // Throws UsageError if a field is left unread.
  void finish() const;

 private:
  void field(std::string_view name, std::span<std::byte> data);
  // The number of items of `item` bytes in the next field, which must have that name.
  std::size_t next_size(std::string_view name, std::size_t item) const;
  std::uint64_t read_header(std::string_view name, std::size_t& at) const;

  bool saving_;
  std::vector<std::byte> written_;
  std::span<const std::byte> unread_;
};

// Writes the tensors, or reads those that were saved. Throws UsageError.
Layout serialize_layout(State& state, const Layout& layout);

}  // namespace sparsewire
