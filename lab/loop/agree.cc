#include "loop/agree.h"

#include <fmt/core.h>

#include <cstdint>

#include "sparsewire/errors.h"
#include "sparsewire/support/crc32c.h"

namespace sparsewire::train {
namespace {

constexpr int kRoot = 0;

template <class T>
void append(std::vector<std::byte>& message, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

// The first `size` bytes of `rest`, which moves past them. Throws if there are fewer.
std::span<const std::byte> next(std::span<const std::byte>& rest, std::uint64_t size) {
  if (size > rest.size()) throw_other_call(kRoot);
  const auto bytes = rest.first(static_cast<std::size_t>(size));
  rest = rest.subspan(bytes.size());
  return bytes;
}

template <class T>
T next_value(std::span<const std::byte>& rest) {
  T value;
  std::memcpy(&value, next(rest, sizeof(T)).data(), sizeof(T));
  return value;
}

}  // namespace

void throw_other_call(std::size_t rank) {
  throw TransportError(
      fmt::format("rank {} made another call than the other ranks, or its message cannot be read", rank),
      static_cast<int>(rank));
}

// Rank 0 passes on, for each rank, the number of its bytes, their checksum and the bytes.
std::vector<std::vector<std::byte>> tell_all(Transport& transport, std::span<const std::byte> mine) {
  std::vector<std::byte> message;
  append(message, crc32c(mine));
  message.insert(message.end(), mine.begin(), mine.end());
  std::vector<std::vector<std::byte>> gathered;
  transport.gather(kRoot, message, gathered);
  std::vector<std::byte> joined;
  for (const auto& one : gathered) {
    append(joined, std::uint64_t{one.size()});
    joined.insert(joined.end(), one.begin(), one.end());
  }
  transport.broadcast(kRoot, joined);

  std::vector<std::vector<std::byte>> all;
  std::span<const std::byte> rest(joined);
  for (int r = 0; r < transport.size(); ++r) {
    const auto size = next_value<std::uint64_t>(rest);
    std::span<const std::byte> theirs = next(rest, size);
    if (theirs.size() < sizeof(std::uint32_t)) throw_other_call(static_cast<std::size_t>(r));
    if (next_value<std::uint32_t>(theirs) != crc32c(theirs)) throw_other_call(static_cast<std::size_t>(r));
    all.emplace_back(theirs.begin(), theirs.end());
  }
  if (!rest.empty()) throw_other_call(kRoot);
  return all;
}

}  // namespace sparsewire::train
