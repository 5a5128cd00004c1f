#include "transport/tcp/peer.h"

namespace sparsewire::tcp {
namespace {

constexpr std::size_t kReadBytes = 4096;
// Of control messages that nobody has looked at yet; far more than a healthy rank sends before they are read.
constexpr std::size_t kMostUnread = std::size_t{1} << 20;
// A rank that reads nothing needs no more status messages.
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;

}  // namespace

void ControlConnection::receive() {
  while (!has_ended_ && received_.size() < kMostUnread + used_) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    const std::size_t before = received_.size();
    received_.resize(before + kReadBytes);
    const Moved moved = tcp::receive(socket_, std::span(received_).subspan(before));
    received_.resize(before + moved.bytes);
    has_ended_ = moved.error != 0;
    if (moved.would_block) return;
  }
}

Parsed ControlConnection::next(int size, ControlMessage& message) {
  std::size_t used = 0;
  const Parsed parsed = read_control(std::span(received_).subspan(used_), size, message, used);
  used_ += used;
  return parsed;
}

std::optional<ControlMessage> ControlConnection::find_failure(int size) const {
  std::span<const std::byte> bytes = std::span(received_).subspan(used_);
  ControlMessage message;
  std::size_t used = 0;
  while (read_control(bytes, size, message, used) == Parsed::message) {
    if (message.kind == ControlMessage::Kind::failed) return message;
    bytes = bytes.subspan(used);
  }
  return std::nullopt;
}

void ControlConnection::send(std::span<const std::byte> bytes) {
  if (!is_open() || unsent_.size() > kMostUnsent) return;
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  flush();
}

// What a broken connection does not take is dropped: who waits for that rank notices by itself.
void ControlConnection::flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const Moved moved = tcp::send(socket_, std::span(unsent_).subspan(sent));
    sent = moved.error != 0 ? unsent_.size() : sent + moved.bytes;
    if (moved.would_block) break;
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
}

}  // namespace sparsewire::tcp
