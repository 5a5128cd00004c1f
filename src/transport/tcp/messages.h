// The message that goes to one rank, and the one that comes from it, in the current call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace sparsewire::tcp {

class SendMessage {
 public:
  bool is_active() const { return is_active_; }

  // `bytes` must stay valid until the message is sent, or clear() was called.
  void start(std::span<const std::byte> bytes);
  void clear() { is_active_ = false; }
  // Passes a part of it to the system. It is no longer active when it has all.
  Moved progress(const Socket& socket);

 private:
  bool is_active_ = false;
  std::uint64_t number_ = 0;
  std::array<std::byte, kHeaderBytes> header_{};
  std::span<const std::byte> unsent_header_;
  std::span<const std::byte> unsent_;
};

class ReceiveMessage {
 public:
  bool is_active() const { return is_active_; }

  // `known_size`: what the caller expects, or Transport::kUnknownSize.
  void start(std::vector<std::byte>& bytes, std::size_t known_size);
  void clear() { is_active_ = false; }
  // Reads a part of it. It is no longer active when it is complete. Throws TransportError with `rank`, which sends it,
  // if the header cannot be right.
  Moved progress(const Socket& socket, int rank);

 private:
  Moved read_header(const Socket& socket, int rank);
  void make_room();

  bool is_active_ = false;
  std::uint64_t number_ = 0;
  std::array<std::byte, kHeaderBytes> header_{};
  std::size_t header_bytes_ = 0;
  std::vector<std::byte>* bytes_ = nullptr;
  std::size_t known_size_ = 0;
  std::size_t length_ = 0;
  std::size_t received_ = 0;
};

}  // namespace sparsewire::tcp
