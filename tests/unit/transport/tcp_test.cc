// TCP between ranks that are threads here: what every transport must do, how ranks find each other, and strangers.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>

#include "effort.h"
#include "exchange/bodies.h"
#include "patience.h"
#include "sparsewire/errors.h"
#include "sparsewire/tcp_transport.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/ended.h"
#include "transport/tcp/peer.h"
#include "transport/tcp_engine.h"
#include "transport/tcp_ranks.h"

namespace sparsewire::tcp_test {
namespace {

using conformance::Bytes;
using conformance::error_that_names;
using conformance::expect_refused;
using std::chrono::milliseconds;

// No test waits so long unless it fails.
const milliseconds kLong = patient(std::chrono::seconds(60));

}  // namespace
}  // namespace sparsewire::tcp_test

namespace sparsewire::conformance {

// Deadlines: in tests/unit/deadlines/. Under sanitizers not with other numbers.
INSTANTIATE_TEST_SUITE_P(TcpTransport, TransportConformance,
                         testing::ValuesIn(kSlowBuild ? std::vector{tcp_engine(2), tcp_engine(5)}
                                                      : std::vector{tcp_engine(1), tcp_engine(2), tcp_engine(3),
                                                                    tcp_engine(5)}),
                         name_of);

}  // namespace sparsewire::conformance

namespace sparsewire::tcp_test {
namespace {

TEST(TcpTransport, NamesARankThatHasEnded) { run_over_tcp(4, waiting_for_a_rank_that_has_ended); }

// For every exchange.
TEST(TcpTransport, GivesAWorkerTheSameBitsAsThreads) {
  for (const bodies::ExchangeCase& setup : bodies::every_exchange_case()) {
    SCOPED_TRACE(setup.name());
    const bodies::Plan plan = bodies::plan_of("topk:ratio=0.05", setup);
    std::uint64_t on_threads = 0;
    std::uint64_t over_tcp = 1;
    run_on_threads(3, [&](Transport& transport) {
      const std::uint64_t sum = bodies::replicas_stay_equal(transport, plan, 10);
      if (transport.rank() == 0) on_threads = sum;
    });
    run_over_tcp(3, [&](Transport& transport) {
      const std::uint64_t sum = bodies::replicas_stay_equal(transport, plan, 10);
      if (transport.rank() == 0) over_tcp = sum;
    });
    EXPECT_EQ(on_threads, over_tcp);
  }
}

// ---- Addresses ----

TEST(TcpListener, HasTheAddressThatOthersConnectTo) {
  const TcpListener listener("127.0.0.1");
  EXPECT_EQ(listener.address().substr(0, 10), "127.0.0.1:");
  EXPECT_GT(std::stoi(listener.address().substr(10)), 0);
  EXPECT_NE(TcpListener("localhost").address(), listener.address());
}

TEST(TcpListener, WorksWithIpv6) {
  try {
    const TcpListener listener("::1");
    EXPECT_EQ(listener.address().substr(0, 6), "[::1]:");
  } catch (const TransportError&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  run_over_tcp(2, conformance::all_gather, kLong, "::1");
}

TEST(TcpListener, RefusesWhatNobodyCanConnectTo) {
  expect_refused("is empty", [] { TcpListener listener(""); });
  expect_refused("'0.0.0.0' stands for all", [] { TcpListener listener("0.0.0.0"); });
  expect_refused("'::' stands for all", [] { TcpListener listener("::"); });
  EXPECT_THROW(TcpListener("no.such.host.invalid"), TransportError);
  EXPECT_THROW(TcpListener("192.0.2.1"), TransportError);  // never an address of this machine
}

TEST(LocalAddressTowards, IsTheOneThatPacketsLeaveFrom) {
  EXPECT_EQ(local_address_towards("127.0.0.1", 80), "127.0.0.1");
  EXPECT_EQ(local_address_towards("127.0.0.9", 65535), "127.0.0.1");
  expect_refused("port 0 is not in [1, 65535]", [] { local_address_towards("127.0.0.1", 0); });
  EXPECT_THROW(local_address_towards("no.such.host.invalid", 80), TransportError);
}

TEST(TcpTransport, RefusesWrongArguments) {
  const std::vector<std::string> two = {"127.0.0.1:1", "127.0.0.1:2"};
  const auto make = [](int rank, const std::vector<std::string>& addresses, const std::string& token = "t",
                       milliseconds deadline = kLong) {
    make_tcp_transport(TcpListener("127.0.0.1"), rank, addresses, token, deadline);
  };
  expect_refused("rank 2 is not in [0, 2)", [&] { make(2, two); });
  expect_refused("rank -1 is not in [0, 2)", [&] { make(-1, two); });
  expect_refused("0 addresses", [&] { make(0, {}); });
  expect_refused("a token of 4097 bytes", [&] { make(0, two, std::string(4097, 'x')); });
  expect_refused("a deadline of 0 ms", [&] { make(0, two, "t", milliseconds(0)); });
  for (const char* const wrong : {"", "127.0.0.1", "127.0.0.1:", ":80", "host:0", "host:65536", "host:8x", "::1:80"}) {
    expect_refused("'" + std::string(wrong) + "' is not an address", [&] { make(0, {two[0], wrong}); });
  }
  TcpListener listener("127.0.0.1");
  const TcpListener other = std::move(listener);
  expect_refused("was moved from", [&] { make_tcp_transport(std::move(listener), 0, two, "t"); });  // NOLINT
}

TEST(TcpTransport, NeedsNothingForOneRank) {
  const std::vector<std::string> addresses = {"nowhere"};
  const auto transport = make_tcp_transport(TcpListener("127.0.0.1"), 0, addresses, "");
  conformance::all_gather(*transport);
  transport->fail("enough");
  EXPECT_NE(error_that_names(0, [&] { transport->barrier(); }).find("enough"), std::string::npos);
}

// ---- Ranks that do not come ----

// Before the deadline: rank 2 notices, and tells rank 0.
TEST(TcpSetup, NamesARankThatHasEndedAtOnce) {
  std::vector<TcpListener> all = listeners(3);
  const std::vector<std::string> addresses = addresses_of(all);
  { const TcpListener gone = std::move(all[1]); }
  std::array<std::string, 2> errors;
  {
    std::vector<std::jthread> threads;
    for (const int rank : {0, 2}) {
      threads.emplace_back([&, rank] {
        errors[static_cast<std::size_t>(rank / 2)] = error_that_names(1, [&] {
          make_tcp_transport(std::move(all[static_cast<std::size_t>(rank)]), rank, addresses, kTcpToken, kLong);
        });
      });
    }
  }
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(addresses[1]), std::string::npos) << error;
    EXPECT_NE(error.find("nobody listens there"), std::string::npos) << error;
  }
}

// ---- Strangers ----

// A connection to the address, as a program that is none of the ranks would make it.
tcp::Socket connect_to(const std::string& address) {
  const tcp::HostAndPort to = tcp::split_address(address);
  const tcp::SocketAddress found = tcp::resolve(to.host, to.port, -1).at(0);
  tcp::Socket socket(::socket(found.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), found.get(), found.length), 0);
  return socket;
}

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(TcpSetup, IsNotDisturbedByStrangers) {
  std::vector<TcpListener> all = listeners(3);
  const std::vector<std::string> addresses = addresses_of(all);
  std::vector<tcp::Socket> strangers;
  for (const std::string& address : addresses) {
    const auto add = [&](const Bytes& bytes) {
      strangers.push_back(connect_to(address));
      if (!bytes.empty()) tcp::send(strangers.back(), bytes);
    };
    const Bytes hello = tcp::hello_with_token({tcp::Channel::messages, 2, 3, kTcpToken.size()}, kTcpToken);
    add({});                                              // silent
    add(bytes_of("GET / HTTP/1.1\r\nHost: me\r\n\r\n"));  // a browser
    add(Bytes(100'000, std::byte{0xFF}));
    add(Bytes(hello.begin(), hello.begin() + 10));  // a part of a hello
    add(Bytes(hello.begin(), hello.end() - 1));     // of a token
    add(tcp::hello_with_token({tcp::Channel::messages, 2, 3, 3}, "abc"));
    add(tcp::hello_with_token({tcp::Channel::messages, 2, 3, 15}, "a secret\1of all"));
    add(tcp::hello_with_token({tcp::Channel::control, 3, 4, kTcpToken.size()}, kTcpToken));  // of another job
    add(Bytes(1));
    strangers.pop_back();  // gone
    for (int i = 0; i < 90; ++i) add({});
  }
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport =
          make_tcp_transport(std::move(all[static_cast<std::size_t>(rank)]), rank, addresses, kTcpToken, kLong);
      conformance::all_gather(*transport);
    });
  }
}

// Rank 1 is connected earlier than rank 0, and fails before rank 0 has noticed: the first call throws that, not the
// set-up.
TEST(TcpSetup, CompletesThoughARankHasFailedAfterIt) {
  TcpListener listener("127.0.0.1");
  const std::vector<std::string> addresses = {listener.address(), "127.0.0.1:1"};
  const tcp::Socket control = connect_to(addresses[0]);
  Bytes bytes = tcp::hello_with_token({tcp::Channel::control, 1, 2, kTcpToken.size()}, kTcpToken);
  tcp::write(tcp::ControlMessage{.kind = tcp::ControlMessage::Kind::failed, .rank = 1, .text = "no disk"}, bytes);
  tcp::send(control, bytes);
  tcp::Socket messages;
  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    messages = connect_to(addresses[0]);
    tcp::send(messages, tcp::hello_with_token({tcp::Channel::messages, 1, 2, kTcpToken.size()}, kTcpToken));
  });
  const auto transport = make_tcp_transport(std::move(listener), 0, addresses, kTcpToken, kLong);
  EXPECT_EQ(error_that_names(1, [&] { transport->barrier(); }), "no disk");
}

// Rank 1 of two, made by hand.
struct RawRank {
  explicit RawRank(const std::string& address) : messages(connect_to(address)), control(connect_to(address)) {
    for (const tcp::Channel channel : {tcp::Channel::messages, tcp::Channel::control}) {
      const Bytes hello = tcp::hello_with_token({channel, 1, 2, kTcpToken.size()}, kTcpToken);
      tcp::send(channel == tcp::Channel::messages ? messages : control, hello);
    }
  }
  tcp::Socket messages;
  tcp::Socket control;
};

// What rank 0 throws when it waits for rank 1, which misbehaves.
std::string error_with(const std::function<void(RawRank&)>& misbehave, Bytes& received) {
  TcpListener listener("127.0.0.1");
  const std::vector<std::string> addresses = {listener.address(), "127.0.0.1:1"};
  RawRank other(addresses[0]);
  const auto transport = make_tcp_transport(std::move(listener), 0, addresses, kTcpToken, kLong);
  misbehave(other);
  return error_that_names(1, [&] {
    const Transport::Incoming in{1, &received};
    transport->send_receive({}, {&in, 1});
  });
}

TEST(TcpMessages, ThatCannotBeRightAreErrors) {
  Bytes received;
  const auto send_header = [](const tcp::MessageHeader& message) {
    return [message](RawRank& other) {
      std::array<std::byte, tcp::kHeaderBytes> header{};
      tcp::write(message, header);
      tcp::send(other.messages, header);
      other.messages.close();
      other.control.close();
    };
  };
  std::string error = error_with([](RawRank& other) { tcp::send(other.messages, Bytes(100)); }, received);
  EXPECT_NE(error.find("not the beginning of message 0"), std::string::npos) << error;
  error = error_with(send_header({1, 5}), received);
  EXPECT_NE(error.find("not the beginning of message 0"), std::string::npos) << error;
  error = error_with(send_header({0, ~std::uint64_t{0}}), received);
  EXPECT_NE(error.find("not the beginning of message 0"), std::string::npos) << error;
  error = error_with([](RawRank& other) { tcp::send(other.control, Bytes(100)); }, received);
  EXPECT_NE(error.find("control message that cannot be read"), std::string::npos) << error;
  EXPECT_EQ(received.capacity(), 0U);

  // A length that is only announced takes no memory.
  error = error_with(send_header({0, std::uint64_t{1} << 60}), received);
  EXPECT_NE(error.find("has ended"), std::string::npos) << error;
  EXPECT_LE(received.capacity(), std::size_t{1} << 20);
}

// Its connection for messages is closed first: what it says over the other one still counts.
TEST(TcpMessages, ARankThatEndsCanStillSayWhy) {
  Bytes received;
  std::jthread later;
  const std::string error = error_with(
      [&](RawRank& other) {
        other.messages.close();
        later = std::jthread([&other] {
          std::this_thread::sleep_for(milliseconds(50));
          Bytes bytes;
          tcp::write(tcp::ControlMessage{.kind = tcp::ControlMessage::Kind::failed, .rank = 1, .text = "no disk"},
                     bytes);
          tcp::send(other.control, bytes);
        });
      },
      received);
  EXPECT_EQ(error, "no disk");
}

// Even if bytes that nobody has read have come from there, and if the other rank begins to read only later: a socket
// that is closed with unread bytes drops what it has not sent.
TEST(TcpMessages, ThatWereSentLastArrive) {
  TcpListener listener("127.0.0.1");
  const std::vector<std::string> addresses = {listener.address(), "127.0.0.1:1"};
  RawRank other(addresses[0]);
  auto transport = make_tcp_transport(std::move(listener), 0, addresses, kTcpToken, kLong);
  tcp::send(other.messages, Bytes(1000));
  const Bytes sent = conformance::message(0, 1, 0, 600'000);
  const Transport::Outgoing out{1, sent};
  transport->send_receive({&out, 1}, {});
  std::jthread destroyer([&] { transport.reset(); });
  std::this_thread::sleep_for(milliseconds(50));
  Bytes got(2 * tcp::kHeaderBytes + kTcpToken.size() + sent.size());  // hello, and the message with its header
  std::size_t count = 0;
  while (count < got.size()) {
    const tcp::Moved moved = tcp::receive(other.messages, std::span(got).subspan(count));
    if (moved.error != 0) break;
    count += moved.bytes;
  }
  ASSERT_EQ(count, got.size());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.end() - static_cast<std::ptrdiff_t>(sent.size())));
}

TEST(TcpWire, ReadsWhatItWrote) {
  std::array<std::byte, tcp::kHeaderBytes> header{};
  tcp::write(tcp::MessageHeader{7, std::uint64_t{1} << 40}, header);
  EXPECT_EQ(tcp::read_message_header(header)->number, 7U);
  EXPECT_EQ(tcp::read_message_header(header)->length, std::uint64_t{1} << 40);
  EXPECT_FALSE(tcp::read_hello(header));
  tcp::write(tcp::Hello{tcp::Channel::control, 3, 5, 16}, header);
  EXPECT_EQ(tcp::read_hello(header)->rank, 3);
  EXPECT_FALSE(tcp::read_message_header(header));

  Bytes bytes;
  const tcp::ControlMessage sent{tcp::ControlMessage::Kind::failed, 4, 12, {0, 2}, "no disk"};
  tcp::write(sent, bytes);
  tcp::ControlMessage got;
  std::size_t used = 0;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(tcp::read_control(std::span(bytes).first(n), 5, got, used), tcp::Parsed::incomplete);
  }
  ASSERT_EQ(tcp::read_control(bytes, 5, got, used), tcp::Parsed::message);
  EXPECT_EQ(used, bytes.size());
  EXPECT_EQ(got.missing, sent.missing);
  EXPECT_EQ(got.text, sent.text);
  EXPECT_EQ(got.rank, 4);
  EXPECT_EQ(got.age_ms, 12);
  EXPECT_EQ(tcp::read_control(bytes, 4, got, used), tcp::Parsed::garbage) << "there is no rank 4";
}

// Whatever arrives: no byte outside of it is read, and no rank is named that does not exist.
TEST(TcpWire, ReadsAnything) {
  conformance::Random random(5);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes;
    tcp::write(tcp::ControlMessage{tcp::ControlMessage::Kind::status, 1, 5, {0, 1, 2}, "abc"}, bytes);
    for (int i = static_cast<int>(random.next() % 4); i >= 0; --i) {
      bytes[random.next() % bytes.size()] = static_cast<std::byte>(random.next() % 3 == 0 ? 0xFF : random.next() % 8);
    }
    bytes.resize(random.next() % (bytes.size() + 1));
    bytes.shrink_to_fit();
    tcp::ControlMessage got;
    std::size_t used = 0;
    if (tcp::read_control(bytes, 3, got, used) != tcp::Parsed::message) continue;
    EXPECT_LE(used, bytes.size());
    EXPECT_LT(got.rank, 3);
    for (const int rank : got.missing) EXPECT_LT(rank, 3);
  }
}

}  // namespace
}  // namespace sparsewire::tcp_test
