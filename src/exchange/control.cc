#include "exchange/control.h"

#include <fmt/core.h>

#include <cstdint>
#include <optional>

#include "core/crc32c.h"
#include "sparsewire/errors.h"

namespace sparsewire {
namespace {

constexpr int kRoot = 0;
constexpr std::size_t kHeadSize = sizeof(std::uint32_t);  // 0, or 1 + the rank whose value cannot be read

void append_checksum(std::vector<std::byte>& message) {
  const std::uint32_t checksum = crc32c(message);
  const auto bytes = std::as_bytes(std::span(&checksum, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
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

}  // namespace

std::span<const std::byte> ControlGather::gather_bytes(std::span<const std::byte> mine) {
  mine_.assign(mine.begin(), mine.end());
  append_checksum(mine_);
  transport_.gather(kRoot, mine_, gathered_);
  if (transport_.rank() == kRoot) {
    std::uint32_t odd = 0;
    all_.resize(kHeadSize);
    for (std::size_t r = 0; r < gathered_.size(); ++r) {
      const auto theirs = without_checksum(gathered_[r]);
      if (!theirs || theirs->size() != mine.size()) {
        if (odd == 0) odd = static_cast<std::uint32_t>(r + 1);
      } else {
        all_.insert(all_.end(), theirs->begin(), theirs->end());
      }
    }
    std::memcpy(all_.data(), &odd, kHeadSize);
    append_checksum(all_);
  }
  transport_.broadcast(kRoot, all_);
  const auto read = without_checksum(all_);
  std::uint32_t odd = 1 + kRoot;
  if (read && read->size() >= kHeadSize) std::memcpy(&odd, read->data(), kHeadSize);
  if (odd == 0 && read->size() != kHeadSize + mine.size() * static_cast<std::size_t>(transport_.size()))
    odd = 1 + kRoot;
  if (odd != 0) {
    const auto rank = static_cast<int>(odd) - 1;
    throw TransportError(
        fmt::format("rank {} made another call than the other ranks, or its message cannot be read", rank), rank);
  }
  return read->subspan(kHeadSize);
}

}  // namespace sparsewire
