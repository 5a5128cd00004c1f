#include "transport/control_gather.h"

#include <fmt/core.h>

#include <cstdint>
#include <optional>

#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire {
namespace {

constexpr int kRoot = 0;

template <class T>
void append(std::vector<std::byte>& message, const T& value) {
  message.resize(message.size() + sizeof(T));
  std::memcpy(message.data() + message.size() - sizeof(T), &value, sizeof(T));
}

// Reads a value from the start of `bytes` and moves past it; false if there are too few.
template <class T>
bool read(std::span<const std::byte>& bytes, T& value) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return true;
}

// Nothing if the checksum does not match.
std::optional<std::span<const std::byte>> without_checksum(std::span<const std::byte> message) {
  std::uint32_t checksum = 0;
  if (message.size() < sizeof checksum) return std::nullopt;
  const auto body = message.first(message.size() - sizeof checksum);
  std::memcpy(&checksum, message.data() + body.size(), sizeof checksum);
  if (crc32c(body) != checksum) return std::nullopt;
  return body;
}

// What rank 0 sends to all: 0, or 1 + the rank whose message cannot be read; then for each rank the number of its
// bytes, then the bytes of all; a checksum.
void join(const std::vector<std::vector<std::byte>>& gathered, std::vector<std::byte>& all) {
  std::uint32_t odd = 0;
  for (std::size_t r = gathered.size(); r-- > 0;) {
    if (!without_checksum(gathered[r])) odd = static_cast<std::uint32_t>(r + 1);
  }
  all.clear();
  append(all, odd);
  for (std::size_t r = 0; odd == 0 && r < gathered.size(); ++r) {
    append(all, std::uint64_t{without_checksum(gathered[r])->size()});
  }
  for (std::size_t r = 0; odd == 0 && r < gathered.size(); ++r) {
    const auto theirs = *without_checksum(gathered[r]);
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  append(all, crc32c(all));
}

// Finds the parts of what join() made. Returns the rank whose message cannot be read, or nothing.
std::optional<std::size_t> split(std::span<const std::byte> all, std::span<std::span<const std::byte>> parts) {
  std::span<const std::byte> rest = without_checksum(all).value_or(std::span<const std::byte>());
  std::uint32_t odd = 0;
  if (!read(rest, odd)) return kRoot;
  if (odd != 0) return odd - 1;
  if (rest.size() < parts.size() * sizeof(std::uint64_t)) return kRoot;
  std::span<const std::byte> sizes = rest;
  rest = rest.subspan(parts.size() * sizeof(std::uint64_t));
  for (std::span<const std::byte>& part : parts) {
    std::uint64_t size = 0;
    if (!read(sizes, size) || size > rest.size()) return kRoot;
    part = rest.first(size);
    rest = rest.subspan(size);
  }
  if (!rest.empty()) return kRoot;
  return std::nullopt;
}

}  // namespace

std::span<const std::span<const std::byte>> ControlGather::gather_bytes(std::span<const std::byte> mine) {
  mine_.assign(mine.begin(), mine.end());
  append(mine_, crc32c(mine));
  parts_.resize(static_cast<std::size_t>(transport_.size()));
  transport_.gather(kRoot, mine_, gathered_);
  if (transport_.rank() == kRoot) join(gathered_, all_);
  transport_.broadcast(kRoot, all_);
  if (const auto odd = split(all_, parts_)) throw_other_call(*odd);
  return parts_;
}

void ControlGather::throw_other_call(std::size_t rank) {
  throw TransportError(
      fmt::format("rank {} made another call than the other ranks, or its message cannot be read", rank),
      static_cast<int>(rank));
}

}  // namespace sparsewire
