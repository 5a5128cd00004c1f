#include "core/state.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>

#include "core/crc32c.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

static_assert(std::endian::native == std::endian::little, "states are little-endian");

constexpr std::string_view kMagic = "SWST";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeader = 16;  // magic, version, total size of the fields
constexpr std::size_t kTrailer = 4;  // CRC-32C of everything before it

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
  if (version != kVersion) {
    throw UsageError(fmt::format("[state] has version {}; this build reads version {} only", version, kVersion));
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
  unread_ = bytes.subspan(kHeader, bytes.size() - kHeader - kTrailer);
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

std::vector<std::byte> State::bytes() && {
  const std::uint64_t size = written_.size() - kHeader;
  std::memcpy(written_.data() + 8, &size, sizeof size);
  const std::uint32_t checksum = crc32c(written_);
  append(written_, &checksum, sizeof checksum);
  return std::move(written_);
}

void State::finish() const {
  if (!unread_.empty()) throw UsageError(fmt::format("[state] has {} bytes after its last field", unread_.size()));
}

// A field: length of the name (1 byte), the name, size of the data (8 bytes), the data.
void State::field(std::string_view name, std::span<std::byte> data) {
  const auto length = static_cast<std::uint8_t>(name.size());
  const std::uint64_t size = data.size();
  if (saving_) {
    append(written_, &length, 1);
    append(written_, name.data(), name.size());
    append(written_, &size, sizeof size);
    append(written_, data.data(), data.size());
    return;
  }
  std::size_t at = 0;
  if (read_header(name, at) != size) throw UsageError(fmt::format("[state] field '{}' has the wrong size", name));
  if (size != 0) std::memcpy(data.data(), unread_.data() + at, size);
  unread_ = unread_.subspan(at + size);
}

std::size_t State::next_size(std::string_view name, std::size_t item) const {
  std::size_t at = 0;
  const std::uint64_t size = read_header(name, at);
  if (size % item != 0) throw UsageError(fmt::format("[state] field '{}' has the wrong size", name));
  return size / item;
}

std::uint64_t State::read_header(std::string_view name, std::size_t& at) const {
  at = 1 + name.size() + 8;
  if (unread_.size() < at || std::to_integer<std::size_t>(unread_[0]) != name.size() ||
      std::memcmp(unread_.data() + 1, name.data(), name.size()) != 0) {
    throw UsageError(fmt::format("[state] field '{}' is missing, or not where it is expected", name));
  }
  const auto size = load<std::uint64_t>(unread_.data() + 1 + name.size());
  if (size > unread_.size() - at) throw UsageError(fmt::format("[state] field '{}' is truncated", name));
  return size;
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
