// The time of a call over TCP between processes of this machine: `tcp_bench 2`. Every rank sends the same number of
// bytes to each other one. Beside it, with two ranks, a yardstick: blocking sockets that send the bytes back and forth,
// half of a round. Then an all-reduce, beside the same messages and sums without the checksums.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sparsewire/tcp_transport.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr std::array<std::size_t, 5> kSizes = {0, 1000, 34'000, 1'000'000, 100'000'000};
constexpr std::size_t kReducedNumbers = std::size_t{4} << 20;  // in one block of messages, as an all-reduce has them

template <class Call>
double seconds_of(Call call) {
  const Clock::time_point begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The median of some rounds, in microseconds.
template <class Round>
double time_of(std::size_t bytes, Round round) {
  const int rounds = bytes > 10'000'000 ? 9 : bytes > 500'000 ? 201 : 3001;
  std::vector<double> times;
  for (int i = -rounds / 10 - 1; i < rounds; ++i) {
    const double seconds = seconds_of(round);
    if (i >= 0) times.push_back(seconds * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)];
}

void require(bool condition, const char* what) {
  if (condition) return;
  fmt::print(stderr, "tcp_bench: {}\n", what);
  std::_Exit(1);
}

void send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    require(count > 0, "send");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void receive_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), 0);
    require(count > 0, "recv");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

// Two connected sockets of this machine.
std::pair<int, int> connected() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  require(::bind(listener, generic, length) == 0 && ::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, generic, &length) == 0, "getsockname");
  const int one = ::socket(AF_INET, SOCK_STREAM, 0);
  require(::connect(one, generic, length) == 0, "connect");
  const int other = ::accept(listener, nullptr, nullptr);
  const int yes = 1;
  for (const int socket : {one, other}) ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::close(listener);
  return {one, other};
}

double time_of_yardstick(bool is_first, int socket, std::size_t size) {
  Bytes bytes(std::max<std::size_t>(size, 1));
  return time_of(size,
                 [&] {
                   if (is_first) send_all(socket, bytes);
                   receive_all(socket, bytes);
                   if (!is_first) send_all(socket, bytes);
                 }) /
         2;
}

void run(Transport& transport, int yardstick) {
  std::vector<Bytes> all;
  for (const std::size_t size : kSizes) {
    const Bytes mine(size, static_cast<std::byte>(transport.rank() + 1));
    const double call = time_of(size, [&] { transport.all_gather(mine, all); });
    for (std::size_t r = 0; r < all.size(); ++r) {
      require(all[r] == Bytes(size, static_cast<std::byte>(r + 1)), "the wrong bytes");
    }
    const double alone = transport.size() == 2 ? time_of_yardstick(transport.rank() == 0, yardstick, size) : 0;
    if (transport.rank() != 0) continue;
    fmt::print("{:>11} bytes  call {:>10.1f} us", size, call);
    if (transport.size() == 2) fmt::print("  blocking sockets, one way {:>10.1f} us", alone);
    fmt::print("\n");
  }
}

// Each rank sums a slice, and sends the sum to all.
void reduce_without_checksums(Transport& transport, std::span<float> numbers, std::vector<Bytes>& received) {
  const auto ranks = static_cast<std::size_t>(transport.size());
  const auto me = static_cast<std::size_t>(transport.rank());
  const auto slice = [&](std::size_t r) {
    const std::size_t begin = numbers.size() * r / ranks;
    return numbers.subspan(begin, numbers.size() * (r + 1) / ranks - begin);
  };
  const auto exchange = [&](auto sent, auto size_of) {
    std::vector<Transport::Outgoing> out;
    std::vector<Transport::Incoming> in;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == me) continue;
      out.push_back({static_cast<int>(r), std::as_bytes(sent(r))});
      in.push_back({static_cast<int>(r), &received[r], size_of(r).size_bytes()});
    }
    transport.send_receive(out, in);
  };
  const auto numbers_of = [&](std::size_t r) { return reinterpret_cast<const float*>(received[r].data()); };
  const auto own = slice(me);
  exchange(slice, [&](std::size_t) { return own; });
  sum_in_rank_order(
      transport.size(),
      [&](int r) { return r == transport.rank() ? own.data() : numbers_of(static_cast<std::size_t>(r)); }, own.size(),
      own.data());
  exchange([&](std::size_t) { return own; }, slice);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r != me) std::copy_n(numbers_of(r), slice(r).size(), slice(r).data());
  }
}

// In turn, so that other programs disturb both.
void run_all_reduce(Transport& transport) {
  for (const std::size_t count : {std::size_t{1'000'000}, std::size_t{25'000'000}}) {
    std::vector<float> numbers(count, 0);
    std::vector<Bytes> received(static_cast<std::size_t>(transport.size()));
    const auto checked = [&] { transport.all_reduce_sum(numbers); };
    const auto bare = [&] {
      for (std::size_t done = 0; done < count; done += kReducedNumbers) {
        reduce_without_checksums(transport, std::span(numbers).subspan(done, std::min(kReducedNumbers, count - done)),
                                 received);
      }
    };
    std::array<std::vector<double>, 2> times;
    for (int round = 0; round < 61; ++round) {
      times[0].push_back(seconds_of(checked));
      times[1].push_back(seconds_of(bare));
    }
    for (std::vector<double>& of : times) std::nth_element(of.begin(), of.begin() + 30, of.end());
    if (transport.rank() != 0) continue;
    fmt::print("{:>11} numbers  all-reduce {:>10.1f} us  without checksums {:>10.1f} us\n", count, times[0][30] * 1e6,
               times[1][30] * 1e6);
  }
}

int main(int ranks) {
  const std::pair<int, int> yardstick = connected();
  std::vector<TcpListener> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) addresses.push_back(listeners.emplace_back("127.0.0.1").address());
  for (int rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    try {
      const auto transport =
          make_tcp_transport(std::move(listeners[static_cast<std::size_t>(rank)]), rank, addresses, "bench");
      run(*transport, rank == 0 ? yardstick.first : yardstick.second);
      run_all_reduce(*transport);
    } catch (const std::exception& error) {
      require(false, error.what());
    }
    std::exit(0);
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sparsewire

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 2;
  if (argc <= 2 && ranks >= 1 && ranks <= 64) return sparsewire::main(ranks);
  fmt::print(stderr, "usage: tcp_bench [RANKS]    between 1 and 64, 2 if not given\n");
  return 2;
}
