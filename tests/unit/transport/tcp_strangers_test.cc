// The TCP set-up among strangers: connections that come from none of the ranks, and ranks that are taken for some.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <deque>
#include <iostream>
#include <optional>

#include "effort.h"
#include "patience.h"
#include "sparsewire/errors.h"
#include "sparsewire/tcp_transport.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/tcp/peer.h"
#include "transport/tcp_ranks.h"

namespace sparsewire::tcp_strangers_test {
namespace {

using conformance::Bytes;
using conformance::error_that_names;
using std::chrono::milliseconds;
using tcp::Channel;
using tcp::Refusal;
using tcp::Socket;

// No test waits so long unless it fails.
const milliseconds kLong = patient(std::chrono::seconds(60));

bool is_readable(const Socket& socket) {
  pollfd polled{socket.fd(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(kLong.count())) == 1;
}

Socket connect_to(const std::string& address) {
  const tcp::HostAndPort to = tcp::split_address(address);
  const tcp::SocketAddress found = tcp::resolve(to.host, to.port, -1).at(0);
  Socket socket(::socket(found.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), found.get(), found.length), 0);
  return socket;
}

Bytes hello_of(Channel channel, int rank, int size, const std::string& token = kTcpToken) {
  return tcp::hello_with_token({channel, rank, size, token.size()}, token);
}

// What comes before the other side closes the connection, at most `size` bytes.
Bytes read_all(const Socket& socket, std::size_t size) {
  Bytes bytes(size);
  std::size_t count = 0;
  while (count < size && is_readable(socket)) {
    const tcp::Moved moved = tcp::receive(socket, std::span(bytes).subspan(count));
    if (moved.error != 0) break;
    count += moved.bytes;
  }
  bytes.resize(count);
  return bytes;
}

// Where a rank listens that is made by hand.
struct RawListener {
  RawListener() : socket(tcp::make_socket(AF_INET, SOCK_STREAM, -1)) {
    const tcp::SocketAddress any_port = tcp::resolve("127.0.0.1", 0, -1).at(0);
    EXPECT_EQ(::bind(socket.fd(), any_port.get(), any_port.length), 0);
    EXPECT_EQ(::listen(socket.fd(), 100), 0);
    address = "127.0.0.1:" + std::to_string(tcp::port_of(tcp::local_address(socket)));
  }
  Socket accept() const {
    if (!is_readable(socket)) throw std::runtime_error("nobody connects");
    return Socket(::accept4(socket.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  Socket socket;
  std::string address;
};

// As any rank, with all others.
void gather_as(int rank, std::vector<TcpListener>& all, const std::vector<std::string>& addresses) {
  try {
    const auto transport =
        make_tcp_transport(std::move(all[static_cast<std::size_t>(rank)]), rank, addresses, kTcpToken, kLong);
    conformance::all_gather(*transport);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

// ---- A rank that is taken for a stranger ----

TEST(TcpStrangers, ARankThatWasDroppedTriesAgain) {
  const RawListener zero;
  TcpListener one("127.0.0.1");
  const std::vector<std::string> addresses = {zero.address, one.address()};
  std::jthread rank_1([&] {
    EXPECT_EQ(
        error_that_names(0, [&] { make_tcp_transport(std::move(one), 1, addresses, kTcpToken, kLong)->barrier(); }),
        "enough");
    connect_to(zero.address);  // ends the loop
  });
  for (int i = 0; i < 3; ++i) zero.accept().close();
  zero.accept().abort();
  tcp::Connections connections;
  while (!connections.messages.is_open() || !connections.control.is_open()) {
    Socket socket = zero.accept();
    const Bytes bytes = read_all(socket, tcp::kHeaderBytes + kTcpToken.size());
    ASSERT_GT(bytes.size(), tcp::kHeaderBytes) << "rank 1 has given up";
    const auto hello = tcp::read_hello(tcp::ConstHeader(bytes.data(), tcp::kHeaderBytes));
    ASSERT_TRUE(hello);
    tcp::send(socket, hello_of(hello->channel, 0, 2));
    connections.open(hello->channel, std::move(socket));
  }
  Bytes failure;
  tcp::write(tcp::ControlMessage{.kind = tcp::ControlMessage::Kind::failed, .rank = 0, .text = "enough"}, failure);
  tcp::send(connections.control.socket(), failure);
}

// However often it is dropped, it waits between its attempts, and does not say that its token was wrong.
TEST(TcpStrangers, ARankThatIsAlwaysDroppedFailsAtItsDeadline) {
  const RawListener zero;
  TcpListener one("127.0.0.1");
  const std::vector<std::string> addresses = {zero.address, one.address()};
  std::atomic<bool> has_failed = false;
  std::jthread rank_1([&] {
    const std::string error =
        error_that_names(0, [&] { make_tcp_transport(std::move(one), 1, addresses, kTcpToken, milliseconds(500)); });
    EXPECT_NE(error.find("was not connected with rank 1 within 500 ms: "), std::string::npos) << error;
    EXPECT_EQ(error.find("token"), std::string::npos) << error;
    has_failed = true;
    connect_to(zero.address);  // ends the loop
  });
  int attempts = 0;
  while (!has_failed) {
    zero.accept().close();
    ++attempts;
  }
  EXPECT_GT(attempts, 2);
  EXPECT_LE(attempts, 2 * (1 + 5) + 1) << "every 100 ms";
}

// As rank 1 of two, once more while rank 0 has not seen the end of its connection before.
Socket connected_with_0(const std::string& address, Channel channel) {
  const Bytes hello = hello_of(channel, 1, 2);
  const auto end = std::chrono::steady_clock::now() + kLong / 4;
  while (true) {
    Socket socket = connect_to(address);
    tcp::send(socket, hello);
    if (read_all(socket, hello.size()) == hello_of(channel, 0, 2)) return socket;
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("rank 0 does not take it");
  }
}

TEST(TcpStrangers, ARankThatConnectsAgainReplacesItsConnection) {
  for (const Channel twice : {Channel::messages, Channel::control}) {
    TcpListener zero("127.0.0.1");
    const std::string address = zero.address();
    Bytes received;
    std::jthread rank_0([&] {
      const std::vector<std::string> addresses = {address, "127.0.0.1:1"};
      const Transport::Incoming in{1, &received};
      EXPECT_NO_THROW(make_tcp_transport(std::move(zero), 0, addresses, kTcpToken, kLong)->send_receive({}, {&in, 1}));
    });
    tcp::send(connected_with_0(address, twice), Bytes(10, std::byte{'x'}));  // nobody may read them
    tcp::Connections connections;
    for (const Channel channel : {twice, twice == Channel::messages ? Channel::control : Channel::messages}) {
      connections.open(channel, connected_with_0(address, channel));
    }
    std::array<std::byte, tcp::kHeaderBytes> header{};
    tcp::write(tcp::MessageHeader{0, 5}, header);
    tcp::send(connections.messages, header, Bytes(5, std::byte{7}));
    rank_0.join();
    EXPECT_EQ(received, Bytes(5, std::byte{7}));
  }
}

// ---- Refusals ----

std::optional<Refusal> answer_to(const std::string& address, const Bytes& hello) {
  const Socket socket = connect_to(address);
  tcp::send(socket, hello);
  const Bytes answer = read_all(socket, tcp::kHeaderBytes + 1);
  if (answer.size() != tcp::kHeaderBytes) return std::nullopt;
  return tcp::read_refusal(tcp::ConstHeader(answer.data(), tcp::kHeaderBytes));
}

TEST(TcpStrangers, AHelloThatIsNotRightIsToldWhy) {
  std::vector<TcpListener> all = listeners(3);
  const std::vector<std::string> addresses = addresses_of(all);
  std::vector<std::jthread> ranks;
  for (const int rank : {1, 2}) ranks.emplace_back([&, rank] { gather_as(rank, all, addresses); });
  const std::string& address = addresses[1];
  EXPECT_EQ(answer_to(address, hello_of(Channel::control, 2, 3, "a secret\1of all")), Refusal::token);
  EXPECT_EQ(answer_to(address, hello_of(Channel::control, 2, 3, "")), Refusal::token);
  EXPECT_EQ(answer_to(address, hello_of(Channel::control, 2, 3, std::string(tcp::kLongestToken, 'x'))), Refusal::token);
  EXPECT_EQ(answer_to(address, hello_of(Channel::control, 3, 4, "abc")), Refusal::token) << "nothing else is told";
  EXPECT_EQ(answer_to(address, hello_of(Channel::messages, 2, 4)), Refusal::size);
  EXPECT_EQ(answer_to(address, hello_of(Channel::messages, 1, 3)), Refusal::rank);
  Bytes hello = hello_of(Channel::messages, 2, 3);
  hello[4] = std::byte{99};  // the version
  EXPECT_EQ(answer_to(address, hello), Refusal::version);
  EXPECT_EQ(answer_to(address, Bytes(100, std::byte{'x'})), std::nullopt);
  gather_as(0, all, addresses);
}

// What rank 1 of two throws when this is the answer to its hello.
std::string error_after(const Bytes& answer) {
  const RawListener zero;
  TcpListener one("127.0.0.1");
  const std::vector<std::string> addresses = {zero.address, one.address()};
  std::string error;
  std::atomic<bool> has_failed = false;
  std::jthread rank_1([&] {
    error = error_that_names(0, [&] { make_tcp_transport(std::move(one), 1, addresses, kTcpToken, kLong); });
    has_failed = true;
    connect_to(zero.address);  // ends the loop
  });
  while (!has_failed) {
    const Socket socket = zero.accept();
    tcp::send(socket, answer);
    read_all(socket, 1000);  // until it is closed
  }
  return error;
}

TEST(TcpStrangers, ARankThatIsRefusedSaysWhy) {
  const auto expect_said = [](const Bytes& answer, const std::string& text) {
    const std::string error = error_after(answer);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  const auto refusal = [](Refusal why) {
    Bytes bytes(tcp::kHeaderBytes);
    tcp::write(why, tcp::Header(bytes.data(), tcp::kHeaderBytes));
    return bytes;
  };
  expect_said(refusal(Refusal::token), "it refused the connection: it has another token");
  expect_said(refusal(Refusal::taken), "another process is connected as rank 1");
  Bytes later = refusal(Refusal::token);
  later[4] = std::byte{99};
  expect_said(later, "it has another version");
  expect_said(hello_of(Channel::messages, 0, 2, "another token!!"), "what answers there is not that rank");
}

TEST(TcpStrangers, TwoProcessesCannotBeOneRank) {
  std::vector<TcpListener> all = listeners(3);
  const std::vector<std::string> addresses = addresses_of(all);
  std::vector<std::jthread> ranks;
  ranks.emplace_back([&] { gather_as(0, all, addresses); });
  {
    const Socket first = connect_to(addresses[0]);
    const Bytes hello = hello_of(Channel::messages, 1, 3);
    tcp::send(first, hello);
    EXPECT_EQ(read_all(first, hello.size()).size(), hello.size());
    EXPECT_EQ(answer_to(addresses[0], hello), Refusal::taken);
  }
  for (const int rank : {1, 2}) ranks.emplace_back([&, rank] { gather_as(rank, all, addresses); });
}

// ---- Many strangers ----

// A process that calls the body, which has to end by itself. It ends with this one at the latest.
class Process {
 public:
  explicit Process(const std::function<void()>& body) : id_(::fork()) {
    if (id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      body();
      ::_exit(0);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      ::_exit(1);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (id_ == 0) return;
    ::kill(id_, SIGKILL);
    wait();
  }

  bool has_ended() const {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(id_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0;
  }
  // Whether it did all.
  bool wait() {
    int status = 0;
    return ::waitpid(std::exchange(id_, 0), &status, 0) > 0 && status == 0;
  }

 private:
  pid_t id_;
};

// Connections of every kind from outside, until its time is over. `made` counts them.
class Flood {
 public:
  Flood(const std::vector<std::string>& addresses, int per_second, milliseconds longest, std::atomic<int>& made)
      : per_second_(per_second), end_(Clock::now() + longest), made_(made) {
    for (const std::string& address : addresses) {
      const tcp::HostAndPort to = tcp::split_address(address);
      targets_.push_back(tcp::resolve(to.host, to.port, -1).at(0));
    }
  }

  void run() {
    const Clock::time_point begin = Clock::now();
    for (std::int64_t i = 0; Clock::now() < end_; ++i) {
      // No more than that many, however fast this machine is; in bursts.
      if (i % 100 == 0) std::this_thread::sleep_until(begin + std::chrono::microseconds(i * 1'000'000 / per_second_));
      const auto turn = static_cast<std::size_t>(i);
      Socket socket = connect_from(turn, targets_[turn % targets_.size()]);
      if (socket.is_open()) {
        speak(socket, turn / targets_.size());
        ++made_;
        held_.push_back(std::move(socket));
      }
      if (held_.size() < kHeld) continue;
      held_.front().abort();
      held_.pop_front();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kHeld = 800;  // open at a time

  // Other addresses of this machine, so that no port is used up.
  static Socket connect_from(std::size_t turn, const tcp::SocketAddress& target) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int one = 1;
    ::setsockopt(socket.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + static_cast<std::uint32_t>(turn % 200));
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0 ||
        (::connect(socket.fd(), target.get(), target.length) != 0 && errno != EINPROGRESS)) {
      socket.close();
    }
    return socket;
  }

  static void speak(Socket& socket, std::size_t kind) {
    const Bytes hello = hello_of(Channel::messages, 7, 8);
    Bytes huge = hello;
    std::fill_n(huge.begin() + 20, 4, std::byte{0xFF});  // the length of the token
    switch (kind % 8) {
      case 0:
        tcp::send(socket, Bytes(10'000, std::byte{'x'}));
        break;
      case 1:
        tcp::send(socket, hello_of(Channel::control, 7, 8, "a secret\1of all"));
        break;
      case 2:
        tcp::send(socket, Bytes(hello.begin(), hello.begin() + 12));
        break;
      case 3:
        tcp::send(socket, huge);
        break;
      case 4:
        socket.abort();
        break;
      default:
        break;  // silent
    }
  }

  const int per_second_;
  const Clock::time_point end_;
  std::atomic<int>& made_;
  std::vector<tcp::SocketAddress> targets_;
  std::deque<Socket> held_;
};

void limit_files(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Rank 0 comes last: at its listener others wait among strangers, of which more come all the time. Half of the ranks
// may open fewer files than strangers come.
TEST(TcpStrangers, DoNotDisturbTheSetup) {
  void* const shared =
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::atomic<int>& made = *new (shared) std::atomic<int>(0);
  const int per_second = kSlowBuild ? 1000 : 10'000;
  const int setups = kSlowBuild ? 2 : effort(5, 20);
  for (int setup = 0; setup < setups; ++setup) {
    std::vector<TcpListener> all = listeners(8);
    const std::vector<std::string> addresses = addresses_of(all);
    std::deque<Process> ranks;
    const auto start = [&](int rank) {
      ranks.emplace_back([&] {
        TcpListener own = std::move(all[static_cast<std::size_t>(rank)]);
        all.clear();
        limit_files(rank % 2 == 0 ? 60 : 200);
        conformance::all_gather(*make_tcp_transport(std::move(own), rank, addresses, kTcpToken, kLong));
      });
    };
    for (int rank = 7; rank > 0; --rank) start(rank);
    const int before = made;
    Process flood([&] { Flood(addresses, per_second, kLong, made).run(); });
    while (made < before + per_second / effort(10, 2) && !flood.has_ended()) std::this_thread::yield();
    EXPECT_FALSE(flood.has_ended());
    start(0);
    for (Process& rank : ranks) EXPECT_TRUE(rank.wait());
  }
  RecordProperty("strangers", made);
  ::munmap(shared, sizeof(std::atomic<int>));
}

}  // namespace
}  // namespace sparsewire::tcp_strangers_test
