// Ranks as processes that find each other by themselves, over TCP: for programs that were not started by mpirun.
//
//   TcpListener listener(local_address_towards(host_of_rank_0, port));   // on every rank
//   publish(rank, listener.address());                                   // a key-value store, a file, ...
//   auto transport = make_tcp_transport(std::move(listener), rank, all_addresses, token);
//
// The token keeps strangers out, but traffic is neither encrypted nor authenticated: use it in trusted networks only.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sparsewire/transport.h"

namespace sparsewire {

// Where a rank waits for the connections of others. It exists before the transport, because its address has to be
// published first. Connections that arrive in between wait.
class TcpListener {
 public:
  // Listens on this address of this machine, at a port that the system chooses: "127.0.0.1", "::1", "10.0.0.3", or a
  // host name. Throws UsageError if it is empty or stands for all addresses ("0.0.0.0", "::"), to which no other rank
  // can connect; TransportError if the system refuses.
  explicit TcpListener(std::string_view address);
  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept;
  TcpListener& operator=(TcpListener&& other) noexcept;

  // With the port: "127.0.0.1:41234", "[::1]:4321".
  const std::string& address() const noexcept { return address_; }

 private:
  friend std::unique_ptr<Transport> make_tcp_transport(TcpListener, int, std::span<const std::string>, std::string_view,
                                                       std::chrono::milliseconds);
  int socket_ = -1;
  std::string address_;
};

// Collective. addresses[r] is where rank r listens; addresses[rank] is not used. `token` is a secret of all ranks, any
// bytes, for instance 16 random ones that rank 0 published: a connection that does not present it is dropped.
//
// Throws UsageError if the rank is not in [0, size), if there are no addresses or more than 4096, if one of them is not
// of the form "host:port", if the token has more than 4096 bytes, or if the deadline is not in [1 ms, 10,000 h]. Throws
// TransportError if not all ranks are connected within the deadline, or if one has ended or has another token: it names
// that rank and its address. Here the deadline counts the whole call, without the time in which this process was
// suspended.
//
// COST: two connections with every other rank, and no thread: messages move only inside of calls. With one rank there
// is no connection at all.
std::unique_ptr<Transport> make_tcp_transport(TcpListener listener, int rank, std::span<const std::string> addresses,
                                              std::string_view token,
                                              std::chrono::milliseconds deadline = kDefaultDeadline);

// The address of this machine from which packets to `host` leave: what a rank listens on so that the others, which are
// where `host` is, can reach it. Sends nothing. Throws UsageError if the port is not in [1, 65535], TransportError if
// the host is not known or there is no route to it.
std::string local_address_towards(std::string_view host, int port);

}  // namespace sparsewire
