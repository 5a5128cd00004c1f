#include "transport/gather_and_broadcast.h"

#include <cstdint>

namespace sparsewire {
namespace {

// What rank 0 broadcasts: for each rank the number of its bytes, then the bytes of all.
std::vector<std::byte> joined(const std::vector<std::vector<std::byte>>& all) {
  std::vector<std::byte> bytes;
  const auto append = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  for (const auto& part : all) {
    const std::uint64_t size = part.size();
    append(std::as_bytes(std::span(&size, 1)));
  }
  for (const auto& part : all) append(part);
  return bytes;
}

// Returns whether `bytes` are what joined() makes of so many parts.
bool split(std::span<const std::byte> bytes, std::vector<std::vector<std::byte>>& all) {
  const std::size_t header = all.size() * sizeof(std::uint64_t);
  if (bytes.size() < header) return false;
  std::span<const std::byte> rest = bytes.subspan(header);
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data() + r * sizeof size, sizeof size);
    if (size > rest.size()) return false;
    all[r].assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
    rest = rest.subspan(size);
  }
  return rest.empty();
}

}  // namespace

std::vector<std::vector<std::byte>> gather_and_broadcast_bytes(Transport& transport, std::span<const std::byte> mine) {
  std::vector<std::vector<std::byte>> all;
  transport.gather(0, mine, all);
  std::vector<std::byte> bytes;
  if (transport.rank() == 0) bytes = joined(all);
  transport.broadcast(0, bytes);
  if (transport.rank() == 0) return all;
  all.resize(static_cast<std::size_t>(transport.size()));
  if (!split(bytes, all)) throw TransportError("rank 0 made another call than the other ranks", 0);
  return all;
}

}  // namespace sparsewire
