#include "transport/tcp/messages.h"

#include <fmt/core.h>

#include <algorithm>

#include "sparsewire/errors.h"

namespace sparsewire::tcp {
namespace {

// Memory for so many bytes is there before the first of them has arrived; for more, only as much again as has arrived.
constexpr std::size_t kFirstBytes = std::size_t{1} << 20;

}  // namespace

void SendMessage::start(std::span<const std::byte> bytes) {
  write(MessageHeader{number_++, bytes.size()}, header_);
  unsent_header_ = header_;
  unsent_ = bytes;
  is_active_ = true;
}

Moved SendMessage::progress(const Socket& socket) {
  const Moved moved = send(socket, unsent_header_, unsent_);
  const std::size_t of_header = std::min(moved.bytes, unsent_header_.size());
  unsent_header_ = unsent_header_.subspan(of_header);
  unsent_ = unsent_.subspan(moved.bytes - of_header);
  is_active_ = !unsent_header_.empty() || !unsent_.empty();
  return moved;
}

void ReceiveMessage::start(std::vector<std::byte>& bytes, std::size_t known_size) {
  header_bytes_ = 0;
  bytes_ = &bytes;
  known_size_ = known_size;
  received_ = 0;
  is_active_ = true;
}

Moved ReceiveMessage::progress(const Socket& socket, int rank) {
  Moved moved;
  if (header_bytes_ < kHeaderBytes) {
    moved = read_header(socket, rank);
    if (header_bytes_ < kHeaderBytes) return moved;
  }
  make_room();
  if (received_ < length_) {
    const Moved more = receive(socket, std::span(*bytes_).subspan(received_));
    received_ += more.bytes;
    moved = {moved.bytes + more.bytes, more.would_block, more.error};
  }
  is_active_ = received_ < length_;
  return moved;
}

Moved ReceiveMessage::read_header(const Socket& socket, int rank) {
  const Moved moved = receive(socket, std::span(header_).subspan(header_bytes_));
  header_bytes_ += moved.bytes;
  if (header_bytes_ < kHeaderBytes) return moved;
  const auto header = read_message_header(header_);
  if (!header || header->number != number_) {
    throw TransportError(fmt::format("rank {} sent something that is not the beginning of message {}", rank, number_),
                         rank);
  }
  ++number_;
  length_ = header->length;
  return moved;
}

// Only as much as what has arrived justifies: a wrong length must not take all memory.
void ReceiveMessage::make_room() {
  if (received_ == 0 && (length_ <= std::max(bytes_->capacity(), kFirstBytes) || length_ == known_size_)) {
    bytes_->resize(length_);
  } else if (received_ == 0) {
    bytes_->resize(std::max(std::min(bytes_->capacity(), length_), kFirstBytes));
  } else if (received_ == bytes_->size() && received_ < length_) {
    bytes_->resize(std::min(length_, 2 * received_));
  }
}

}  // namespace sparsewire::tcp
