// The two connections with one other rank.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace sparsewire::tcp {

// Control messages to and from one rank.
class ControlConnection {
 public:
  void open(Socket socket) { socket_ = std::move(socket); }
  const Socket& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }

  // Reads what has arrived. After the other side has closed the connection, has_ended() is true.
  void receive();
  bool has_ended() const { return has_ended_; }
  // Takes the next message; `size` is the number of ranks.
  Parsed next(int size, ControlMessage& message);
  // The first of the messages that says that all calls fail, and leaves them there.
  std::optional<ControlMessage> find_failure(int size) const;

  // Sends what it can at once, and the rest in flush().
  void send(std::span<const std::byte> bytes);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }

 private:
  Socket socket_;
  std::vector<std::byte> received_;
  std::size_t used_ = 0;  // of `received_`
  std::vector<std::byte> unsent_;
  bool has_ended_ = false;
};

struct Connections {
  Socket messages;
  ControlConnection control;

  const Socket& socket(Channel channel) const { return channel == Channel::messages ? messages : control.socket(); }
  // Replaces the connection that was there.
  void open(Channel channel, Socket socket) {
    if (channel == Channel::messages) {
      messages = std::move(socket);
    } else {
      control = {};
      control.open(std::move(socket));
    }
  }
};

}  // namespace sparsewire::tcp
