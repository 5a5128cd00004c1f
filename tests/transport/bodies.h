// What every transport must do, as functions that each rank calls: on threads in unit/transport_test.cc, as processes
// in transport/mpi_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/half.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace sparsewire::bodies {

using Bytes = std::vector<std::byte>;

// Numbers that look random; the same on every rank.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}

  std::uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_;
};

// What `from` sends to `to`.
inline Bytes message(int from, int to, int round, std::size_t size) {
  Numbers numbers(static_cast<std::uint64_t>(from) << 40 | static_cast<std::uint64_t>(to) << 20 |
                  static_cast<std::uint64_t>(round));
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint32_t)) {
    const std::uint32_t number = numbers.next();
    std::memcpy(bytes.data() + i, &number, std::min(sizeof(number), size - i));
  }
  return bytes;
}

// Unlike EXPECT_EQ it does not print megabytes.
inline void expect_same(const Bytes& got, const Bytes& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  EXPECT_TRUE(got == wanted);
}

inline std::string context(const Transport& transport) {
  return "rank " + std::to_string(transport.rank()) + " of " + std::to_string(transport.size());
}

// Different sizes, in another order on each rank.
inline std::size_t size_of(int from, int to) {
  constexpr std::array<std::size_t, 7> kSizes = {0, 1, 17, 61'440, 61'441, 100'000, 2'000'003};
  return kSizes[static_cast<std::size_t>(from + 2 * to) % kSizes.size()];
}

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
      Numbers numbers(static_cast<std::uint64_t>((round * 64 + from) * 64 + to));
      const std::uint32_t number = numbers.next();
      return number % 4 == 0 ? 0 : static_cast<std::size_t>(numbers.next() % (number % 16 == 1 ? 70'000 : 300));
    };
    Numbers numbers(static_cast<std::uint64_t>(round));
    const int root = static_cast<int>(numbers.next()) % size;
    switch (numbers.next() % 6) {
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
  Numbers numbers(static_cast<std::uint64_t>(rank) << 32 | index);
  return (static_cast<float>(numbers.next() % 20001) - 10000.0F) / static_cast<float>(1 + numbers.next() % 997);
}

inline constexpr std::array<std::size_t, 9> kReduced = {0, 1, 2, 31, 33, 1000, 4099, 100'003, 300'007};

// The sum in rank order, and so the same bits on all ranks.
inline void sums(Transport& transport) {
  SCOPED_TRACE(context(transport));
  for (const std::size_t n : kReduced) {
    SCOPED_TRACE(n);
    std::vector<float> numbers(n);
    std::vector<float> wanted(n);
    for (int r = 0; r < transport.size(); ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        const float number = number_of(r, i);
        if (r == transport.rank()) numbers[i] = number;
        wanted[i] = r == 0 ? number : wanted[i] + number;
      }
    }
    transport.all_reduce_sum(numbers);
    EXPECT_TRUE(numbers == wanted);
  }
}

inline void sums_of_bf16(Transport& transport) {
  SCOPED_TRACE(context(transport));
  for (const std::size_t n : kReduced) {
    SCOPED_TRACE(n);
    std::vector<std::uint16_t> numbers(n);
    std::vector<float> sums(n);
    for (int r = 0; r < transport.size(); ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint16_t number = to_bf16(number_of(r, i));
        if (r == transport.rank()) numbers[i] = number;
        sums[i] += from_bf16(number);
      }
    }
    std::vector<std::uint16_t> wanted(n);  // rounded once
    std::transform(sums.begin(), sums.end(), wanted.begin(), to_bf16);
    transport.all_reduce_sum_bf16(numbers);
    EXPECT_TRUE(numbers == wanted);
  }
}

// The message, or "" if the call did not throw.
inline std::string error_that_names(int rank, const std::function<void()>& call) {
  try {
    call();
  } catch (const TransportError& error) {
    EXPECT_EQ(error.rank(), rank) << error.what();
    return error.what();
  }
  return "";
}

// One rank makes its call only after the calls of all others have failed. `meet` returns when all ranks have called it;
// it does not use the transport. `call` is what every rank calls.
inline void a_late_rank(Transport& transport, int late, const std::function<void()>& meet,
                        const std::function<void(Transport&)>& call) {
  SCOPED_TRACE(context(transport));
  if (transport.rank() == late) meet();
  EXPECT_NE(error_that_names(late, [&] { call(transport); }), "");
  // Later calls fail, too.
  EXPECT_NE(error_that_names(late, [&] { transport.barrier(); }), "");
  if (transport.rank() != late) meet();
}

// Calls in which a late rank is noticed.
inline const std::vector<std::function<void(Transport&)>>& calls() {
  static const std::vector<std::function<void(Transport&)>> kCalls = {
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

// The call throws a UsageError that has these words.
inline void expect_refused(const std::string& words, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error about " << words;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
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
  EXPECT_EQ(bytes, Bytes(10));
  EXPECT_EQ(all, std::vector<Bytes>(3, Bytes(5)));
  all_gather(transport);
}

// Descending order is allowed, too.
inline void messages_in_any_order(Transport& transport) {
  SCOPED_TRACE(context(transport));
  std::vector<Bytes> sent;
  std::vector<Bytes> received(static_cast<std::size_t>(transport.size()));
  for (int r = 0; r < transport.size(); ++r) sent.push_back(message(transport.rank(), r, 0, 100));
  std::vector<Transport::Outgoing> out;
  std::vector<Transport::Incoming> in;
  for (int r = transport.size() - 1; r >= 0; --r) {
    out.push_back({r, sent[static_cast<std::size_t>(r)]});
    in.push_back({r, &received[static_cast<std::size_t>(r)]});
  }
  transport.send_receive(out, in);
  for (int r = 0; r < transport.size(); ++r) {
    expect_same(received[static_cast<std::size_t>(r)], message(r, transport.rank(), 0, 100));
  }
}

// Rank 1 passes one number more than the others: the call fails on all ranks.
inline void sums_of_different_sizes(Transport& transport) {
  std::vector<float> numbers(transport.rank() == 1 ? 10'001 : 10'000);
  EXPECT_THROW(transport.all_reduce_sum(numbers), TransportError) << context(transport);
  EXPECT_THROW(transport.barrier(), TransportError) << context(transport);
}

// The last rank makes fewer calls than the others.
inline void waiting_for_a_rank_that_has_ended(Transport& transport) {
  const int gone = transport.size() - 1;
  transport.barrier();
  if (transport.rank() == gone) return;
  const std::string error = error_that_names(gone, [&] { transport.barrier(); });
  EXPECT_NE(error.find("has ended"), std::string::npos) << error;
}

}  // namespace sparsewire::bodies
