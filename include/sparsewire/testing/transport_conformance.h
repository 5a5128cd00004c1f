// Tests of every promise of transport.h, for any transport, with GoogleTest. In one source file of your test program:
//
//   #include <sparsewire/testing/transport_conformance.h>
//
//   namespace sparsewire::conformance {
//   INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance, testing::Values(Engine{.name = "OnThreeRanks", .run = ...}),
//                            name_of);
//   }
//
// and link it with GTest::gtest_main. An Engine runs a function on all ranks; docs/guides/extending.md shows one. Tests
// that need more ranks than the engine has, or a deadline where it has none, are skipped. Nothing else of sparsewire
// includes this header.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace sparsewire::conformance {

using Bytes = std::vector<std::byte>;
using Body = std::function<void(Transport&)>;

struct Engine {
  std::string name = {};  // letters and digits
  int ranks = 1;
  // Calls body(transport) once for each of the ranks, at the same time, each with its part of a new transport, and
  // returns when all have ended. Where the ranks are processes, each of them runs all the tests, and this calls the
  // body of the own rank.
  std::function<void(const Body& body)> run = {};

  // Below: leave out what your transport does not have.

  // As `run`, with this deadline.
  std::function<void(const Body& body, std::chrono::milliseconds deadline)> run_with_deadline = {};
  // Returns when all ranks of a run have called it, without using the transport: a std::barrier, MPI_Barrier.
  std::function<void()> meet = {};
  // Whether fail() reaches the other ranks.
  bool fail_reaches_all = false;
  // For tests in which it passes: long enough that a busy machine does not use it up. Ranks make pauses of a part of
  // it, with `pause`: an engine that measures the deadline by a clock of its own makes them by that clock.
  std::chrono::milliseconds short_deadline{5000};
  std::function<void(std::chrono::milliseconds)> pause = [](auto time) { std::this_thread::sleep_for(time); };
};

inline std::ostream& operator<<(std::ostream& out, const Engine& engine) { return out << engine.name; }
// For INSTANTIATE_TEST_SUITE_P.
inline std::string name_of(const testing::TestParamInfo<Engine>& info) { return info.param.name; }

// ---- What the tests send ----

// Numbers that look random; the same on every rank.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}

  std::uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_;
};

// What `from` sends to `to`.
inline Bytes message(int from, int to, int round, std::size_t size) {
  Random random(static_cast<std::uint64_t>(from) << 40 | static_cast<std::uint64_t>(to) << 20 |
                static_cast<std::uint64_t>(round));
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint32_t)) {
    const std::uint32_t number = random.next();
    std::memcpy(bytes.data() + i, &number, std::min(sizeof(number), size - i));
  }
  return bytes;
}

// Different sizes, in another order on each rank.
inline std::size_t size_of(int from, int to) {
  constexpr std::array<std::size_t, 7> kSizes = {0, 1, 17, 61'440, 61'441, 100'000, 2'000'003};
  return kSizes[static_cast<std::size_t>(from + 2 * to) % kSizes.size()];
}

// Unlike EXPECT_EQ it does not print megabytes.
inline void expect_same(const Bytes& got, const Bytes& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  EXPECT_TRUE(got == wanted);
}

inline std::string context(const Transport& transport) {
  return "rank " + std::to_string(transport.rank()) + " of " + std::to_string(transport.size());
}

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Rounds to nearest, ties to even. REQUIRES: finite, and not rounded to infinity.
inline std::uint16_t to_bf16(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// The message of the error, or "" if the call did not throw.
inline std::string error_that_names(int rank, const std::function<void()>& call) {
  try {
    call();
  } catch (const TransportError& error) {
    EXPECT_EQ(error.rank(), rank) << error.what();
    return error.what();
  }
  return "";
}

// The call throws a UsageError that has these words.
inline void expect_refused(const std::string& words, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error about " << words;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// ---- What every rank does ----

inline void all_gather(Transport& transport) {
  SCOPED_TRACE(context(transport));
  for (int round = 0; round < 7; ++round) {
    std::vector<Bytes> all;
    transport.all_gather(message(transport.rank(), 0, round, size_of(transport.rank(), round)), all);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(transport.size()));
    for (int r = 0; r < transport.size(); ++r) {
      expect_same(all[static_cast<std::size_t>(r)], message(r, 0, round, size_of(r, round)));
    }
  }
}

inline void all_to_all(Transport& transport) {
  SCOPED_TRACE(context(transport));
  std::vector<Bytes> from(99, Bytes(5));  // the old content does not matter
  for (int round = 0; round < 3; ++round) {
    std::vector<Bytes> to;
    for (int r = 0; r < transport.size(); ++r) {
      to.push_back(message(transport.rank(), r, round, size_of(transport.rank() + round, r)));
    }
    transport.all_to_all(to, from);
    ASSERT_EQ(from.size(), static_cast<std::size_t>(transport.size()));
    for (int r = 0; r < transport.size(); ++r) {
      expect_same(from[static_cast<std::size_t>(r)],
                  message(r, transport.rank(), round, size_of(r + round, transport.rank())));
    }
  }
}

inline void gather_and_broadcast(Transport& transport) {
  SCOPED_TRACE(context(transport));
  for (const int root : {0, transport.size() - 1}) {
    std::vector<Bytes> all(3);
    transport.gather(root, message(transport.rank(), root, 0, size_of(transport.rank(), root)), all);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(transport.rank() == root ? transport.size() : 0));
    for (std::size_t r = 0; r < all.size(); ++r) {
      expect_same(all[r], message(static_cast<int>(r), root, 0, size_of(static_cast<int>(r), root)));
    }
    for (int round = 0; round < 4; ++round) {
      Bytes bytes = transport.rank() == root ? message(root, 0, round, size_of(root, round)) : Bytes(77);
      transport.broadcast(root, bytes);
      expect_same(bytes, message(root, 0, round, size_of(root, round)));
    }
    transport.barrier();
  }
}

// Calls of all kinds, one after the other: no call may receive a message of another one.
inline void many_rounds(Transport& transport) {
  SCOPED_TRACE(context(transport));
  const int size = transport.size();
  std::vector<Bytes> all;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const auto length = [&](int from, int to) {
      Random random(static_cast<std::uint64_t>((round * 64 + from) * 64 + to));
      const std::uint32_t number = random.next();
      return number % 4 == 0 ? 0 : static_cast<std::size_t>(random.next() % (number % 16 == 1 ? 70'000 : 300));
    };
    Random random(static_cast<std::uint64_t>(round));
    const int root = static_cast<int>(random.next()) % size;
    switch (random.next() % 6) {
      case 0:
        transport.all_gather(message(transport.rank(), 0, round, length(transport.rank(), 0)), all);
        for (int r = 0; r < size; ++r) {
          expect_same(all[static_cast<std::size_t>(r)], message(r, 0, round, length(r, 0)));
        }
        break;
      case 1: {
        std::vector<Bytes> to;
        for (int r = 0; r < size; ++r) to.push_back(message(transport.rank(), r, round, length(transport.rank(), r)));
        transport.all_to_all(to, all);
        for (int r = 0; r < size; ++r) {
          expect_same(all[static_cast<std::size_t>(r)],
                      message(r, transport.rank(), round, length(r, transport.rank())));
        }
        break;
      }
      case 2:
        transport.gather(root, message(transport.rank(), root, round, length(transport.rank(), root)), all);
        for (std::size_t r = 0; r < all.size(); ++r) {
          expect_same(all[r], message(static_cast<int>(r), root, round, length(static_cast<int>(r), root)));
        }
        break;
      case 3: {
        Bytes bytes = message(transport.rank(), 0, round, length(transport.rank(), 0));
        transport.broadcast(root, bytes);
        expect_same(bytes, message(root, 0, round, length(root, 0)));
        break;
      }
      case 4:
        transport.barrier();
        break;
      default: {
        std::vector<float> ones(length(0, 0), 1.0F);
        transport.all_reduce_sum(ones);
        EXPECT_EQ(ones, std::vector<float>(length(0, 0), static_cast<float>(size)));
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

inline float number_of(int rank, std::size_t index) {
  Random random(static_cast<std::uint64_t>(rank) << 32 | index);
  return (static_cast<float>(random.next() % 20001) - 10000.0F) / static_cast<float>(1 + random.next() % 997);
}

inline constexpr std::array<std::size_t, 9> kReduced = {0, 1, 2, 31, 33, 1000, 4099, 100'003, 300'007};

// All ranks have the same bytes.
inline void expect_same_everywhere(Transport& transport, std::span<const std::byte> mine) {
  std::vector<Bytes> all;
  transport.all_gather(mine, all);
  for (const Bytes& theirs : all) EXPECT_TRUE(theirs == all[0]);
}

// Integers, whose sum is exact in any order.
inline void sum_of_integers(Transport& transport, std::size_t n) {
  SCOPED_TRACE(n);
  std::vector<float> integers(n);
  for (std::size_t i = 0; i < n; ++i) {
    integers[i] = static_cast<float>(static_cast<int>(i % 1000) * (transport.rank() + 1));
  }
  transport.all_reduce_sum(std::span(integers));
  const int factor = transport.size() * (transport.size() + 1) / 2;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wrong += integers[i] == static_cast<float>(static_cast<int>(i % 1000) * factor) ? 0U : 1U;
  }
  EXPECT_EQ(wrong, 0U);
}

// Any order of summation is right, so the bits are known only where all of them give the same.
inline void sums(Transport& transport) {
  SCOPED_TRACE(context(transport));
  for (const std::size_t n : kReduced) {
    SCOPED_TRACE(n);
    std::vector<float> numbers(n);
    for (std::size_t i = 0; i < n; ++i) numbers[i] = number_of(transport.rank(), i);
    transport.all_reduce_sum(numbers);
    expect_same_everywhere(transport, std::as_bytes(std::span(numbers)));
    sum_of_integers(transport, n);
    // The order changes a sum of a few numbers only in its last bits.
    for (std::size_t i = 0; i < std::min<std::size_t>(n, 1000); ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int r = 0; r < transport.size(); ++r) {
        sum += static_cast<double>(number_of(r, i));
        magnitude += std::abs(static_cast<double>(number_of(r, i)));
      }
      EXPECT_NEAR(static_cast<double>(numbers[i]), sum, 1e-6 * magnitude);
    }
  }
  sum_of_integers(transport, 4'200'000);  // more than the default adds at a time
}

// Integers whose sum is exact in f32 in any order: the result is that sum, rounded once.
inline void sums_of_bf16(Transport& transport) {
  SCOPED_TRACE(context(transport));
  const auto number_at = [](int rank, std::size_t i) {
    Random random(static_cast<std::uint64_t>(rank) << 32 | i);
    return static_cast<float>(static_cast<int>(random.next() % 511) - 255);  // bf16 has 8 bits
  };
  for (const std::size_t n : kReduced) {
    SCOPED_TRACE(n);
    std::vector<std::uint16_t> numbers(n);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) numbers[i] = to_bf16(number_at(transport.rank(), i));
    transport.all_reduce_sum({numbers.data(), NumberType::bf16, n});
    for (std::size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int r = 0; r < transport.size(); ++r) sum += number_at(r, i);
      wrong += from_bf16(numbers[i]) == from_bf16(to_bf16(sum)) ? 0U : 1U;
    }
    EXPECT_EQ(wrong, 0U);
  }
}

// Every rank makes the same wrong calls. None of them sends anything, so the transport works afterwards.
inline void wrong_arguments(Transport& transport) {
  SCOPED_TRACE(context(transport));
  const int size = transport.size();
  const std::string range = "[0, " + std::to_string(size) + ")";
  std::vector<Bytes> all(3, Bytes(5));
  Bytes bytes(10);
  for (const int rank : {-1, size, 1'000'000}) {
    const std::string words = std::to_string(rank) + " is not in " + range;
    expect_refused("broadcast: root " + words, [&] { transport.broadcast(rank, bytes); });
    expect_refused("gather: root " + words, [&] { transport.gather(rank, bytes, all); });
    const Transport::Outgoing out{rank, bytes};
    const Transport::Incoming in{rank, &bytes};
    expect_refused("send_receive: destination " + words, [&] { transport.send_receive({&out, 1}, {}); });
    expect_refused("send_receive: source " + words, [&] { transport.send_receive({}, {&in, 1}); });
  }
  for (const int wrong : {0, size - 1, size + 1}) {
    const auto count = static_cast<std::size_t>(wrong);
    expect_refused("all_to_all: " + std::to_string(count) + " messages for " + std::to_string(size) + " ranks",
                   [&] { transport.all_to_all(std::vector<Bytes>(count, bytes), all); });
  }
  const std::string own = std::to_string(transport.rank());
  const Transport::Outgoing to_self{transport.rank(), bytes};
  const Transport::Incoming from_self{transport.rank(), &bytes};
  const Transport::Incoming to_nowhere{transport.rank(), nullptr};
  const std::array twice_out = {to_self, to_self};
  const std::array twice_in = {from_self, from_self};
  expect_refused("send_receive: two messages to rank " + own, [&] {
    transport.send_receive(twice_out, {&from_self, 1});
  });
  expect_refused("send_receive: two messages from rank " + own, [&] {
    transport.send_receive({&to_self, 1}, twice_in);
  });
  expect_refused("send_receive: no buffer for the message from rank " + own, [&] {
    transport.send_receive({&to_self, 1}, {&to_nowhere, 1});
  });
  expect_refused("send_receive: rank " + own + " sends to itself", [&] { transport.send_receive({&to_self, 1}, {}); });
  expect_refused("send_receive: rank " + own + " receives from itself", [&] {
    transport.send_receive({}, {&from_self, 1});
  });
  if (size > 2) {  // not next to each other, in descending order
    const int last = size - 1;
    const std::vector<Transport::Outgoing> out = {{last, bytes}, {0, bytes}, {last, bytes}};
    expect_refused("send_receive: two messages to rank " + std::to_string(last),
                   [&] { transport.send_receive(out, {}); });
  }
  expect_refused("all_reduce_sum: numbers of this type", [&] {
    transport.all_reduce_sum({bytes.data(), NumberType::f16, 5});
  });
  expect_refused("all_reduce_sum: `data` is null", [&] { transport.all_reduce_sum({nullptr, NumberType::f32, 5}); });
  EXPECT_EQ(bytes, Bytes(10));
  EXPECT_EQ(all, std::vector<Bytes>(3, Bytes(5)));
  all_gather(transport);
}

// Descending order is allowed, too, and sizes that are said beforehand.
inline void messages_in_any_order(Transport& transport) {
  SCOPED_TRACE(context(transport));
  std::vector<Bytes> sent;
  std::vector<Bytes> received(static_cast<std::size_t>(transport.size()));
  for (int r = 0; r < transport.size(); ++r) {
    sent.push_back(message(transport.rank(), r, 0, size_of(transport.rank(), r)));
  }
  std::vector<Transport::Outgoing> out;
  std::vector<Transport::Incoming> in;
  for (int r = transport.size() - 1; r >= 0; --r) {
    out.push_back({r, sent[static_cast<std::size_t>(r)]});
    in.push_back({r, &received[static_cast<std::size_t>(r)]});
    if (r % 2 == 0) in.back().size = size_of(r, transport.rank());
  }
  transport.send_receive(out, in);
  for (int r = 0; r < transport.size(); ++r) {
    expect_same(received[static_cast<std::size_t>(r)], message(r, transport.rank(), 0, size_of(r, transport.rank())));
  }
}

// The last rank passes one number more than the others, or numbers of another type: the call fails on all ranks.
inline void sums_of_different_numbers(Transport& transport, bool other_type) {
  SCOPED_TRACE(context(transport));
  const bool is_last = transport.rank() == transport.size() - 1;
  std::vector<float> numbers(is_last && !other_type ? 10'001 : 10'000);
  WritableNumbers given(numbers);
  if (is_last && other_type) given = {numbers.data(), NumberType::bf16, numbers.size()};
  EXPECT_THROW(transport.all_reduce_sum(given), TransportError);
  EXPECT_THROW(transport.barrier(), TransportError);
}

// Rank 0 expects one byte more than the last rank sends.
inline void another_size_than_expected(Transport& transport, bool reaches_all) {
  SCOPED_TRACE(context(transport));
  const int last = transport.size() - 1;
  Bytes bytes(9);
  if (transport.rank() == last) {
    const Transport::Outgoing out{0, bytes};
    try {
      transport.send_receive({&out, 1}, {});
    } catch (const TransportError& error) {  // rank 0 may already have failed
      EXPECT_TRUE(reaches_all) << error.what();
    }
  }
  if (transport.rank() == 0) {
    const Transport::Incoming in{last, &bytes, 10};
    const std::string error = error_that_names(last, [&] { transport.send_receive({}, {&in, 1}); });
    EXPECT_NE(error.find("9 bytes"), std::string::npos) << error;
  }
  if (transport.rank() == 0 || reaches_all) {
    EXPECT_THROW(transport.barrier(), TransportError);
  }
}

// The last rank calls fail() while the others wait for it.
inline void a_failure(Transport& transport, bool reaches_all) {
  SCOPED_TRACE(context(transport));
  const int last = transport.size() - 1;
  if (transport.rank() == last) {
    transport.barrier();
    transport.fail("the disk is full");
    transport.fail("this comes too late");
  } else if (!reaches_all) {
    transport.barrier();
    return;
  }
  for (int call = 0; call < 2; ++call) {
    const std::string error = error_that_names(last, [&] {
      while (true) transport.barrier();  // it may reach the others in the first one
    });
    EXPECT_NE(error.find("the disk is full"), std::string::npos) << error;
  }
}

// fail() from another thread, while this rank and all others but the last wait for the last.
inline void a_failure_from_another_thread(Transport& transport, const std::function<void()>& meet) {
  SCOPED_TRACE(context(transport));
  const bool is_last = transport.rank() == transport.size() - 1;
  if (is_last) meet();
  {
    std::jthread other;
    if (transport.rank() == 0) {
      other = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most often this rank is in its call then
        transport.fail("a fan stopped");
      });
    }
    const std::string error = error_that_names(0, [&] { transport.barrier(); });
    EXPECT_NE(error.find("a fan stopped"), std::string::npos) << error;
  }
  if (!is_last) meet();
}

// Calls in which a late rank is noticed.
inline const std::vector<Body>& calls() {
  static const std::vector<Body> kCalls = {
      [](Transport& transport) { transport.barrier(); },
      [](Transport& transport) {
        std::vector<Bytes> from;
        transport.all_to_all(std::vector<Bytes>(static_cast<std::size_t>(transport.size()), Bytes(3'000'000)), from);
      },
      [](Transport& transport) {
        std::vector<float> numbers(100'000);
        transport.all_reduce_sum(numbers);
      },
      // All wait for the root, but it is not the root that is late.
      [](Transport& transport) {
        std::vector<Bytes> all;
        transport.gather(0, Bytes(10), all);
        Bytes bytes;
        transport.broadcast(0, bytes);
        transport.barrier();
      },
  };
  return kCalls;
}

// One rank makes its call only after the calls of all others have failed.
inline void a_late_rank(Transport& transport, int late, const std::function<void()>& meet, const Body& call) {
  SCOPED_TRACE(context(transport));
  if (transport.rank() == late) meet();
  EXPECT_NE(error_that_names(late, [&] { call(transport); }), "");
  // Later calls fail, too.
  EXPECT_NE(error_that_names(late, [&] { transport.barrier(); }), "");
  if (transport.rank() != late) meet();
}

inline void receive(Transport& transport, int from) {
  Bytes bytes;
  const Transport::Incoming in{from, &bytes};
  transport.send_receive({}, {&in, 1});
}

inline void send(Transport& transport, int to) {
  const Bytes bytes(1);
  const Transport::Outgoing out{to, bytes};
  transport.send_receive({&out, 1}, {});
}

// Rank 0 waits for rank 1, which comes after `pause` and then waits for rank 2, which does not come at all.
inline void a_chain_to_a_late_rank(Transport& transport, std::chrono::milliseconds pause, const Engine& engine) {
  SCOPED_TRACE(context(transport));
  transport.barrier();
  if (transport.rank() >= 2) engine.meet();
  const std::string error = error_that_names(2, [&] {
    if (transport.rank() == 1) {
      engine.pause(pause);
      receive(transport, 2);
    }
    receive(transport, 1);  // on the other ranks as well, which are told that the transport has failed
  });
  EXPECT_NE(error, "");
  if (transport.rank() < 2) engine.meet();
}

// The ranks make their calls one pause after the other, each shorter than the deadline, all of them together longer.
// Rank 0 is the first, then the highest: what arrives early is progress, too, if it is not the message of the lowest.
inline void ranks_that_come_one_after_the_other(Transport& transport, std::chrono::milliseconds pause,
                                                const Engine& engine) {
  SCOPED_TRACE(context(transport));
  transport.barrier();
  if (transport.rank() > 0) engine.pause(std::min(transport.size() - transport.rank(), 4) * pause);
  std::vector<Bytes> all;
  transport.gather(0, Bytes(10), all);
  Bytes bytes(transport.rank() == 0 ? 7 : 0);
  transport.broadcast(0, bytes);
  EXPECT_EQ(bytes.size(), 7U);
}

// Rank 0 waits for rank 1 and so on, until a rank that is in a call for longer than the deadline, but makes progress:
// the two last ranks send to it, after one pause and after two.
inline void a_chain_to_a_slow_rank(Transport& transport, std::chrono::milliseconds pause, const Engine& engine) {
  SCOPED_TRACE(context(transport));
  const int slow = transport.size() - 3;
  const int rank = transport.rank();
  transport.barrier();
  if (rank > slow) {
    engine.pause((rank - slow) * pause);
    send(transport, slow);
  } else if (rank == slow) {
    std::array<Bytes, 2> received;
    const std::array<Transport::Incoming, 2> in = {{{slow + 1, received.data()}, {slow + 2, received.data() + 1}}};
    transport.send_receive({}, in);
  } else {
    receive(transport, rank + 1);
  }
  if (rank > 0 && rank <= slow) send(transport, rank - 1);
  transport.barrier();
}

// Rank 0 waits for rank 1, which comes after a pause and then waits for rank 2, which comes after another one. Nothing
// arrives meanwhile: that rank 1 has come is all the progress there is.
inline void a_chain_of_ranks_that_come_late(Transport& transport, std::chrono::milliseconds pause,
                                            const Engine& engine) {
  SCOPED_TRACE(context(transport));
  const int rank = transport.rank();
  transport.barrier();
  if (rank <= 2) engine.pause(rank * pause);
  if (rank < 2) receive(transport, rank + 1);
  if (rank == 1 || rank == 2) send(transport, rank - 1);
  transport.barrier();
}

// ---- The tests ----

class TransportConformance : public testing::TestWithParam<Engine> {
 protected:
  static const Engine& engine() { return GetParam(); }
  static std::chrono::milliseconds deadline() { return engine().short_deadline; }
  static bool has_deadline() { return engine().run_with_deadline && engine().meet; }
};

TEST_P(TransportConformance, KnowsItsRankAndItsSize) {
  engine().run([](Transport& transport) {
    EXPECT_EQ(transport.size(), engine().ranks);
    EXPECT_GE(transport.rank(), 0);
    EXPECT_LT(transport.rank(), transport.size());
  });
}

TEST_P(TransportConformance, AllGathersUnequalMessages) { engine().run(all_gather); }
TEST_P(TransportConformance, SendsFromAllToAll) { engine().run(all_to_all); }
TEST_P(TransportConformance, GathersAndBroadcasts) { engine().run(gather_and_broadcast); }
TEST_P(TransportConformance, KeepsManyRoundsApart) { engine().run(many_rounds); }
TEST_P(TransportConformance, SumsToTheSameBitsOnAllRanks) { engine().run(sums); }
TEST_P(TransportConformance, RoundsASumOfBf16Once) { engine().run(sums_of_bf16); }
TEST_P(TransportConformance, TakesMessagesInAnyOrder) { engine().run(messages_in_any_order); }
TEST_P(TransportConformance, RefusesWrongArguments) { engine().run(wrong_arguments); }

TEST_P(TransportConformance, SumsOfDifferentNumbersFailOnAllRanks) {
  if (engine().ranks < 2) GTEST_SKIP() << "needs two ranks";
  for (const bool other_type : {false, true}) {
    engine().run([&](Transport& transport) { sums_of_different_numbers(transport, other_type); });
  }
}

TEST_P(TransportConformance, AnotherSizeThanExpectedIsAnError) {
  if (engine().ranks < 2) GTEST_SKIP() << "needs two ranks";
  engine().run([](Transport& transport) { another_size_than_expected(transport, engine().fail_reaches_all); });
}

TEST_P(TransportConformance, AFailureIsThrownByTheNextCall) {
  engine().run([](Transport& transport) { a_failure(transport, engine().fail_reaches_all); });
}

TEST_P(TransportConformance, FailsFromAnotherThread) {
  if (engine().ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (!engine().fail_reaches_all || !engine().meet) GTEST_SKIP() << "fail() does not reach the other ranks";
  engine().run([](Transport& transport) { a_failure_from_another_thread(transport, engine().meet); });
}

TEST_P(TransportConformance, AllRanksNameTheLateOne) {
  if (engine().ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (!has_deadline()) GTEST_SKIP() << "this transport has no deadline";
  for (const Body& call : calls()) {
    engine().run_with_deadline(
        [&](Transport& transport) { a_late_rank(transport, transport.size() - 1, engine().meet, call); }, deadline());
  }
}

TEST_P(TransportConformance, ARankThatWaitsIsNotBlamed) {
  if (engine().ranks < 3) GTEST_SKIP() << "needs three ranks";
  if (!has_deadline()) GTEST_SKIP() << "this transport has no deadline";
  for (const auto pause : {std::chrono::milliseconds(0), deadline() / 10 * 6}) {
    engine().run_with_deadline([&](Transport& transport) { a_chain_to_a_late_rank(transport, pause, engine()); },
                               deadline());
  }
}

TEST_P(TransportConformance, ACallThatMakesProgressMayTakeLongerThanTheDeadline) {
  if (engine().ranks < 3) GTEST_SKIP() << "needs three ranks";
  if (!has_deadline()) GTEST_SKIP() << "this transport has no deadline";
  const auto with_pauses = [](auto body, std::chrono::milliseconds pause) {
    engine().run_with_deadline([&](Transport& transport) { body(transport, pause, engine()); }, deadline());
  };
  with_pauses(ranks_that_come_one_after_the_other, deadline() / 10 * 6);
  with_pauses(a_chain_to_a_slow_rank, deadline() / 10 * 6);
  with_pauses(a_chain_of_ranks_that_come_late, deadline() / 10 * 8);  // so late that rank 1 has to say so at once
}

}  // namespace sparsewire::conformance
