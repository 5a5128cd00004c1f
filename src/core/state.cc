#include "sparsewire/state.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire {
namespace {

static_assert(std::endian::native == std::endian::little, "states are little-endian");

constexpr std::string_view kMagic = "SWST";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeader = 16;        // magic, version, total size of the fields
constexpr std::size_t kTrailer = 4;        // CRC-32C of everything before it
constexpr std::size_t kMostFields = 1000;  // far more than there are: looking for a name takes time for each of them
constexpr std::uint8_t kOptional = 0x80;   // added to the length of the name

void append(std::vector<std::byte>& to, const void* data, std::size_t size) {
  if (size == 0) return;
  to.resize(to.size() + size);
  std::memcpy(to.data() + to.size() - size, data, size);
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[noreturn]] void throw_too_many_fields() {
  throw UsageError(fmt::format("[state] has more than {} fields", kMostFields));
}

}  // namespace

State::State() : saving_(true) {
  append(written_, kMagic.data(), kMagic.size());
  append(written_, &kVersion, sizeof kVersion);
  const std::uint64_t size = 0;  // bytes() sets it
  append(written_, &size, sizeof size);
}

State::State(std::span<const std::byte> bytes) : saving_(false) {
  if (bytes.size() < kHeader + kTrailer || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    throw UsageError(fmt::format("[state] these {} bytes are not a saved state", bytes.size()));
  }
  const auto version = load<std::uint32_t>(bytes.data() + 4);
  if (version < 1 || version > kVersion) {
    throw UsageError(fmt::format("[state] has version {}; this build reads versions 1 to {}", version, kVersion));
  }
  const auto size = load<std::uint64_t>(bytes.data() + 8);
  if (size != bytes.size() - kHeader - kTrailer) {
    throw UsageError(fmt::format("[state] has {} bytes, but its header announces {} + {}: it is truncated or damaged",
                                 bytes.size(), size, kHeader + kTrailer));
  }
  const auto checksum = load<std::uint32_t>(bytes.data() + bytes.size() - kTrailer);
  if (checksum != crc32c(bytes.first(bytes.size() - kTrailer))) {
    throw UsageError("[state] the checksum does not match: the bytes were changed");
  }
  parse(bytes.subspan(kHeader, bytes.size() - kHeader - kTrailer), version);
}

// A field: length of the name (1 byte; the highest bit says that the field is optional, but in version 1 it belongs to
// the length), the name, size of the data (8 bytes), the data.
void State::parse(std::span<const std::byte> unread, std::uint32_t version) {
  const std::uint8_t optional_bit = version == 1 ? 0 : kOptional;
  while (!unread.empty()) {
    const auto first = std::to_integer<std::uint8_t>(unread[0]);
    const bool is_optional = (first & optional_bit) != 0;
    const std::size_t length = std::size_t{first} - (is_optional ? kOptional : 0U);
    const std::size_t head = 1 + length + sizeof(std::uint64_t);
    if (unread.size() < head) throw UsageError("[state] the name of a field is truncated");
    const std::string_view name(reinterpret_cast<const char*>(unread.data() + 1), length);
    const auto size = load<std::uint64_t>(unread.data() + 1 + length);
    if (size > unread.size() - head) throw UsageError(fmt::format("[state] field '{}' is truncated", name));
    if (find(name) != nullptr) throw UsageError(fmt::format("[state] field '{}' is there twice", name));
    if (fields_.size() == kMostFields) throw_too_many_fields();
    fields_.push_back({name, unread.subspan(head, size), is_optional, false});
    unread = unread.subspan(head + size);
  }
}

void State::string(std::string_view name, std::string& value) {
  std::vector<char> letters(value.begin(), value.end());
  array(name, letters);
  if (!saving_) value.assign(letters.begin(), letters.end());
}

void State::flag(std::string_view name, bool& value) {
  std::uint8_t byte = value ? 1 : 0;
  this->value(name, byte);
  if (byte > 1) throw UsageError(fmt::format("[state] field '{}' is neither 0 nor 1", name));
  value = byte != 0;
}

void State::nested(std::string_view name, const std::function<void(State&)>& serialize) {
  std::vector<std::byte> bytes;
  if (saving_) {
    State inner;
    serialize(inner);
    bytes = std::move(inner).bytes();
    array(name, bytes);
    return;
  }
  array(name, bytes);
  State inner(bytes);
  inner.remap_index = remap_index;
  serialize(inner);
  inner.finish();
}

std::vector<std::byte> State::bytes() && {
  assert(saving_);
  const std::uint64_t size = written_.size() - kHeader;
  std::memcpy(written_.data() + 8, &size, sizeof size);
  const std::uint32_t checksum = crc32c(written_);
  append(written_, &checksum, sizeof checksum);
  return std::move(written_);
}

void State::finish() const {
  for (const Field& field : fields_) {
    if (field.was_read || field.is_optional) continue;
    throw UsageError(
        fmt::format("[state] field '{}' is not known here: the state belongs to something else, or to a later version",
                    field.name));
  }
}

const State::Field* State::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) { return field.name == name; });
  return found == fields_.end() ? nullptr : &*found;
}

State::Field& State::required(std::string_view name) {
  const Field* const found = find(name);
  if (found == nullptr) throw UsageError(fmt::format("[state] field '{}' is missing", name));
  return fields_[static_cast<std::size_t>(found - fields_.data())];
}

void State::field(std::string_view name, std::span<std::byte> data) {
  if (saving_) {
    write(name, data, false);
    return;
  }
  Field& found = required(name);
  if (found.data.size() != data.size()) throw UsageError(fmt::format("[state] field '{}' has the wrong size", name));
  std::copy(found.data.begin(), found.data.end(), data.begin());
  found.was_read = true;
}

bool State::optional_field(std::string_view name, std::span<std::byte> data) {
  if (!saving_ && !has(name)) return false;
  if (saving_) {
    write(name, data, true);
  } else {
    field(name, data);
  }
  return true;
}

void State::write(std::string_view name, std::span<const std::byte> data, bool is_optional) {
  if (name.size() >= kOptional) throw UsageError(fmt::format("[state] '{}' is too long for a name", name));
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
    throw UsageError(fmt::format("[state] field '{}' is written twice", name));
  }
  if (names_.size() == kMostFields) throw_too_many_fields();
  names_.emplace_back(name);
  const auto length = static_cast<std::uint8_t>(name.size() | (is_optional ? kOptional : 0));
  const std::uint64_t size = data.size();
  append(written_, &length, 1);
  append(written_, name.data(), name.size());
  append(written_, &size, sizeof size);
  append(written_, data.data(), data.size());
}

std::size_t State::count_of(std::string_view name, std::size_t item) {
  const std::size_t size = required(name).data.size();
  if (size % item != 0) throw UsageError(fmt::format("[state] field '{}' has the wrong size", name));
  return size / item;
}

Layout serialize_layout(State& state, const Layout& layout) {
  std::vector<std::uint64_t> sizes;
  std::string names;  // each is followed by a zero byte
  for (const TensorRange& tensor : layout.tensors()) {
    sizes.push_back(tensor.size);
    names += tensor.name + '\0';
  }
  state.array("tensor_sizes", sizes);
  state.string("tensor_names", names);
  if (state.saving()) return layout;
  std::vector<TensorRange> tensors;
  std::size_t at = 0;
  for (const std::uint64_t size : sizes) {
    const std::size_t end = names.find('\0', at);
    if (end == std::string::npos) throw UsageError("[state] has fewer tensor names than tensors");
    tensors.push_back({names.substr(at, end - at), size});
    at = end + 1;
  }
  if (at != names.size()) throw UsageError("[state] has more tensor names than tensors");
  return Layout(std::move(tensors));
}

}  // namespace sparsewire
