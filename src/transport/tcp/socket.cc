#include "transport/tcp/socket.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include "sparsewire/errors.h"
#include "sparsewire/tcp_transport.h"

namespace sparsewire::tcp {
namespace {

// How many bytes at most in one call of the system, so that other ranks have their turn.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

Moved result_of(ssize_t count) {
  if (count >= 0) return {.bytes = static_cast<std::size_t>(count)};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {.would_block = errno != EINTR};
  return {.error = errno};
}

[[noreturn]] void throw_refused(const std::string& what, int error, int rank) {
  throw TransportError(fmt::format("[tcp] {}: {}", what, error_text(error)), rank);
}

}  // namespace

void Socket::close() {
  if (fd_ != -1) ::close(release());
}

void Socket::abort() {
  const linger at_once{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

bool has_ended(const Socket& socket) {
  pollfd polled{socket.fd(), POLLRDHUP, 0};
  return ::poll(&polled, 1, 0) == 1;
}

Moved receive(const Socket& socket, std::span<std::byte> to) {
  Moved moved;
  do {
    const ssize_t count = ::recv(socket.fd(), to.data(), std::min(to.size(), kMostBytes), 0);
    if (count == 0 && !to.empty()) return {.error = ENOTCONN};
    moved = result_of(count);
  } while (moved.bytes == 0 && !moved.would_block && moved.error == 0 && !to.empty());
  return moved;
}

Moved send(const Socket& socket, std::span<const std::byte> first, std::span<const std::byte> second) {
  std::array<iovec, 2> parts = {{{const_cast<std::byte*>(first.data()), first.size()},
                                 {const_cast<std::byte*>(second.data()), std::min(second.size(), kMostBytes)}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  Moved moved;
  do {
    moved = result_of(::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  } while (moved.bytes == 0 && !moved.would_block && moved.error == 0);
  return moved;
}

HostAndPort split_address(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  HostAndPort result;
  if (colon != std::string_view::npos) {
    std::string_view host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
      host = {};
    }
    const char* const end = address.data() + address.size();
    const auto [last, error] = std::from_chars(address.data() + colon + 1, end, result.port);
    if (error == std::errc() && last == end && result.port >= 1 && result.port <= 65535) result.host = host;
  }
  if (!result.host.empty()) return result;
  throw UsageError(fmt::format("[tcp] '{}' is not an address like 10.0.0.3:4321, [::1]:4321 or host:4321", address));
}

std::string numeric_host(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  const int code = ::getnameinfo(address.get(), address.length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  if (code != 0) throw TransportError(fmt::format("[tcp] {}", ::gai_strerror(code)), -1);
  return host.data();
}

int port_of(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port)
                                               : ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
}

SocketAddress local_address(const Socket& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw_refused("getsockname", errno, -1);
  }
  return address;
}

std::vector<SocketAddress> resolve(const std::string& host, int port, int rank) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (code != 0) throw TransportError(fmt::format("[tcp] host '{}': {}", host, ::gai_strerror(code)), rank);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    address.length = info->ai_addrlen;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
  }
  return addresses;
}

Socket make_socket(int family, int type, int rank) {
  Socket socket(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) throw_refused("no socket", errno, rank);
  return socket;
}

void set_options(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.fd(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

std::string error_text(int error) {
  return error == ENOTCONN ? "the other side closed the connection" : std::system_category().message(error);
}

}  // namespace sparsewire::tcp

namespace sparsewire {

using tcp::Socket;
using tcp::SocketAddress;

TcpListener::TcpListener(std::string_view address) {
  if (address.empty()) throw UsageError("[tcp] the address to listen on is empty");
  std::string_view host = address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int error = 0;
  for (const SocketAddress& candidate : tcp::resolve(std::string(host), 0, -1)) {
    const std::string name = tcp::numeric_host(candidate);
    if (name == "0.0.0.0" || name == "::") {
      throw UsageError(
          fmt::format("[tcp] '{}' stands for all addresses of this machine: give one that others can "
                      "connect to, see local_address_towards()",
                      address));
    }
    Socket socket = tcp::make_socket(candidate.storage.ss_family, SOCK_STREAM, -1);
    if (::bind(socket.fd(), candidate.get(), candidate.length) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) {
      error = errno;
      continue;
    }
    const int port = tcp::port_of(tcp::local_address(socket));
    address_ =
        candidate.storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", name, port) : fmt::format("{}:{}", name, port);
    socket_ = socket.release();
    return;
  }
  throw TransportError(fmt::format("[tcp] cannot listen on '{}': {}", address, tcp::error_text(error)), -1);
}

TcpListener::~TcpListener() { Socket(socket_).close(); }

TcpListener::TcpListener(TcpListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), address_(std::move(other.address_)) {}

TcpListener& TcpListener::operator=(TcpListener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(address_, other.address_);
  return *this;
}

std::string local_address_towards(std::string_view host, int port) {
  if (port < 1 || port > 65535) throw UsageError(fmt::format("[tcp] port {} is not in [1, 65535]", port));
  int error = 0;
  for (const SocketAddress& candidate : tcp::resolve(std::string(host), port, -1)) {
    // A datagram socket only looks up the route.
    const Socket socket = tcp::make_socket(candidate.storage.ss_family, SOCK_DGRAM, -1);
    if (::connect(socket.fd(), candidate.get(), candidate.length) == 0) {
      return tcp::numeric_host(tcp::local_address(socket));
    }
    error = errno;
  }
  throw TransportError(fmt::format("[tcp] no route to '{}': {}", host, tcp::error_text(error)), -1);
}

}  // namespace sparsewire
