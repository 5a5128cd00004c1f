// Saved state: named fields, a version, a checksum. In each class one function, `serialize`, both saves and restores,
// so the two cannot get out of step. docs/reference/state_format.md describes the format.
//
//   void serialize(State& state) override {
//     state.value("momentum", momentum_);
//     state.array("history", history_);
//   }
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

  // Each call writes the field of that name, or reads it. When reading, the order does not matter. Throws UsageError if
  // there is no such field, or its size is wrong; if the name is longer than 127 bytes, or was written before; if there
  // are more than 1,000 fields.
  template <class T>
  void value(std::string_view name, T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>, "bool: use flag()");
    field(name, std::as_writable_bytes(std::span(&value, 1)));
  }
  template <class T, class Allocator>
  void array(std::string_view name, std::vector<T, Allocator>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!saving_) values.resize(count_of(name, sizeof(T)));
    field(name, std::as_writable_bytes(std::span(values)));
  }
  void string(std::string_view name, std::string& value);
  void flag(std::string_view name, bool& value);

  // A field that is a state of its own, which `serialize` writes or reads: its names are apart from those here. It has
  // the same remap_index. Throws UsageError, also if not all of it was read.
  void nested(std::string_view name, const std::function<void(State&)>& serialize);

  // For a field that later versions add: readers that do not know it skip it, where an unknown field is an error
  // otherwise. Returns whether the value was written or read; not if an older version wrote the state.
  template <class T>
  bool optional_value(std::string_view name, T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>, "bool: use a std::uint8_t");
    return optional_field(name, std::as_writable_bytes(std::span(&value, 1)));
  }
  // Whether the state that is read has the field.
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }

  // Set if the tensors are in another order now than when the state was saved: the new flat index of the entry that had
  // `index`, or nothing if its tensor no longer exists. Null if all indices are the same.
  std::function<std::optional<std::uint32_t>(std::uint32_t index)> remap_index;

  // The finished bytes of a written state.
  std::vector<std::byte> bytes() &&;
  // Throws UsageError if there is a field that was not read and is not optional: a later version wrote it.
  void finish() const;

 private:
  struct Field {
    std::string_view name;
    std::span<const std::byte> data;
    bool is_optional;
    bool was_read;
  };

  void field(std::string_view name, std::span<std::byte> data);
  bool optional_field(std::string_view name, std::span<std::byte> data);
  void write(std::string_view name, std::span<const std::byte> data, bool is_optional);
  void parse(std::span<const std::byte> fields, std::uint32_t version);
  // The number of items of `item` bytes each in the field.
  std::size_t count_of(std::string_view name, std::size_t item);
  const Field* find(std::string_view name) const noexcept;
  Field& required(std::string_view name);

  bool saving_;
  std::vector<std::byte> written_;
  std::vector<std::string> names_;  // of the fields written
  std::vector<Field> fields_;       // of a state to be read
};

// Writes the tensors of `layout`, or reads the layout that was saved. Throws UsageError.
Layout serialize_layout(State& state, const Layout& layout);

}  // namespace sparsewire
