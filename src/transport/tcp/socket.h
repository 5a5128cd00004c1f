// Sockets that close themselves, and addresses. All sockets are non-blocking, and no program that this one starts
// inherits them.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparsewire::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ != -1; }
  int release() { return std::exchange(fd_, -1); }
  void close();
  // Without a farewell: what is unsent is dropped, and the system keeps nothing of the connection.
  void abort();

 private:
  int fd_ = -1;
};

// What recv and send did, without EINTR and EAGAIN.
struct Moved {
  std::size_t bytes = 0;
  bool would_block = false;  // nothing now
  int error = 0;             // of a connection that is broken; ENOTCONN if the other side has closed it
};
Moved receive(const Socket& socket, std::span<std::byte> to);
// Both spans in this order, as one packet if they are short.
Moved send(const Socket& socket, std::span<const std::byte> first, std::span<const std::byte> second = {});

// Whether the other side has closed the connection, or it is broken. What has arrived may not be read yet.
bool has_ended(const Socket& socket);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct HostAndPort {
  std::string host;
  int port = 0;
};
// "host:port" or "[host]:port"; throws UsageError.
HostAndPort split_address(std::string_view address);
std::string numeric_host(const SocketAddress& address);
int port_of(const SocketAddress& address);
SocketAddress local_address(const Socket& socket);

// All addresses of a host; throws TransportError with this rank if there is none.
std::vector<SocketAddress> resolve(const std::string& host, int port, int rank);

// Throw TransportError with this rank if the system refuses.
Socket make_socket(int family, int type, int rank);
// Small messages leave at once, and a host that is gone is noticed also where nothing is sent.
void set_options(const Socket& socket);

std::string error_text(int error);

}  // namespace sparsewire::tcp
