// What every transport must do, as functions of one rank: run on threads by unit/transport_test.cc, as processes by
// transport/mpi_test.cc.
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

// EXPECT_EQ would print megabytes.
inline void expect_same(const Bytes& got, const Bytes& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  EXPECT_TRUE(got == wanted);
}

inline std::string context(const Transport& transport) {
  return "rank " + std::to_string(transport.rank()) + " of " + std::to_string(transport.size());
}

// Unequal, and in another order on each rank.
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
  std::vector<Bytes> from(99, Bytes(5));  // what was there before does not matter
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

// Calls of all kinds without a pause: a message must not be taken for one of another call.
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

// One rank stays away until all others have given up; `meet` returns when all ranks have called it, and knows nothing
// of the transport. `call` is the one that the others make.
inline void a_late_rank(Transport& transport, int late, const std::function<void()>& meet,
                        const std::function<void(Transport&)>& call) {
  SCOPED_TRACE(context(transport));
  if (transport.rank() == late) meet();
  EXPECT_NE(error_that_names(late, [&] { call(transport); }), "");
  // And from now on.
  EXPECT_NE(error_that_names(late, [&] { transport.barrier(); }), "");
  if (transport.rank() != late) meet();
}

// The calls that a late rank is missed in.
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
      // All wait for the root, but it is not the one who is late.
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

// Rank 1 sums up one number more than the others; all are told.
inline void sums_of_different_sizes(Transport& transport) {
  std::vector<float> numbers(transport.rank() == 1 ? 10'001 : 10'000);
  EXPECT_THROW(transport.all_reduce_sum(numbers), TransportError) << context(transport);
  EXPECT_THROW(transport.barrier(), TransportError) << context(transport);
}

// The last rank is done before the others.
inline void who_waits_for_one_that_has_ended(Transport& transport) {
  const int gone = transport.size() - 1;
  transport.barrier();
  if (transport.rank() == gone) return;
  const std::string error = error_that_names(gone, [&] { transport.barrier(); });
  EXPECT_NE(error.find("has ended"), std::string::npos) << error;
}

}  // namespace sparsewire::bodies
