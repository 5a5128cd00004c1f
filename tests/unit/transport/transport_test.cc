// Ranks as threads: what every transport must do, and what happens when a worker fails.
#include "sparsewire/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>

#include "effort.h"
#include "meeting.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/half.h"
#include "sparsewire/testing/transport_conformance.h"
#include "transport/control_gather.h"
#include "transport/ended.h"
#include "transport/least.h"
#include "transport/star.h"
#include "transport/virtual_time.h"

namespace sparsewire::transport_test {
namespace {

using std::chrono::milliseconds;

// With a deadline they are on virtual time, so that it may be long.
conformance::Engine threads(int ranks) {
  const auto met = std::make_shared<Meeting>(ranks);
  return {.name = "On" + std::to_string(ranks),
          .ranks = ranks,
          .run = [=](const conformance::Body& body) { run_on_threads(ranks, met->watched(body)); },
          .run_with_deadline = [=](const conformance::Body& body,
                                   milliseconds deadline) { run_on_virtual_time(ranks, body, deadline); },
          .meet =
              [=] {
                const VirtualRank own = VirtualRank::own();
                own.time == nullptr ? met->arrive_and_wait() : own.meet();
              },
          .fail_reaches_all = true,
          .short_deadline = std::chrono::minutes(5),
          .pause = [](milliseconds time) { VirtualRank::own().sleep(time); }};
}

conformance::Engine least(int ranks) {
  return {.name = "On" + std::to_string(ranks), .ranks = ranks, .run = [=](const conformance::Body& body) {
            run_on_threads(ranks, [&](Transport& transport) {
              LeastTransport least(transport);
              body(least);
            });
          }};
}

std::vector<conformance::Engine> engines(conformance::Engine (*make)(int), const std::vector<int>& ranks) {
  std::vector<conformance::Engine> all;
  for (const int number : ranks) all.push_back(make(number));
  return all;
}

}  // namespace
}  // namespace sparsewire::transport_test

namespace sparsewire::conformance {

// Under sanitizers with fewer numbers of ranks: eight of them take as long as all others.
INSTANTIATE_TEST_SUITE_P(ThreadTransport, TransportConformance,
                         testing::ValuesIn(transport_test::engines(transport_test::threads,
                                                                   kSlowBuild ? std::vector{2, 3}
                                                                              : std::vector{1, 2, 3, 5, 8})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(DefaultsOfTransport, TransportConformance,
                         testing::ValuesIn(transport_test::engines(transport_test::least,
                                                                   kSlowBuild ? std::vector{3} : std::vector{1, 3, 5})),
                         name_of);

}  // namespace sparsewire::conformance

namespace sparsewire::transport_test {
namespace {

using conformance::Bytes;
using conformance::error_that_names;
using conformance::number_of;

constexpr std::array<std::size_t, 5> kReduced = {0, 1, 33, 4099, 300'007};

// Both sums: that of the thread engine, and the default that MPI uses.
TEST(SumsOfTransports, AreInRankOrder) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::size_t n : kReduced) {
      SCOPED_TRACE(n);
      std::vector<float> wanted(n);
      std::vector<float> sums(n);  // of the numbers rounded to bf16
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < n; ++i) {
          wanted[i] = r == 0 ? number_of(r, i) : wanted[i] + number_of(r, i);
          sums[i] += from_bf16(to_bf16(number_of(r, i)));
        }
      }
      std::vector<std::uint16_t> wanted_halves(n);  // rounded once
      std::transform(sums.begin(), sums.end(), wanted_halves.begin(), to_bf16);
      run_on_threads(ranks, [&](Transport& transport) {
        LeastTransport least(transport);
        for (Transport* const engine : {&transport, static_cast<Transport*>(&least)}) {
          std::vector<float> numbers(n);
          std::vector<std::uint16_t> halves(n);
          for (std::size_t i = 0; i < n; ++i) {
            numbers[i] = number_of(transport.rank(), i);
            halves[i] = to_bf16(numbers[i]);
          }
          engine->all_reduce_sum(numbers);
          engine->all_reduce_sum({halves.data(), NumberType::bf16, n});
          EXPECT_TRUE(numbers == wanted);
          EXPECT_TRUE(halves == wanted_halves);
        }
      });
    }
  }
}

TEST(ControlGather, GivesAllRanksTheValuesOfAllOverRank0) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_on_threads(ranks, [](Transport& transport) {
      StarTransport star(transport);
      ControlGather control(star);
      for (int round = 0; round < 3; ++round) {
        std::vector<int> values;
        control.gather(10 * transport.rank() + round, values);
        ASSERT_EQ(values.size(), static_cast<std::size_t>(transport.size()));
        for (int r = 0; r < transport.size(); ++r) EXPECT_EQ(values[static_cast<std::size_t>(r)], 10 * r + round);
        const auto length = [&](int r) { return static_cast<std::size_t>((r + round) % 3 * 1000); };
        const auto bytes = control.gather_bytes(conformance::message(transport.rank(), 0, 0, length(transport.rank())));
        ASSERT_EQ(bytes.size(), static_cast<std::size_t>(transport.size()));
        for (int r = 0; r < transport.size(); ++r) {
          EXPECT_TRUE(std::ranges::equal(bytes[static_cast<std::size_t>(r)], conformance::message(r, 0, 0, length(r))));
        }
      }
    });
  }
}

TEST(ControlGather, NamesARankThatMadeAnotherCall) {
  run_on_threads(4, [](Transport& transport) {
    // Rank 2 has another view.
    const std::string error = error_that_names(transport.rank() == 2 ? 0 : 2, [&] {
      ControlGather control(transport);
      if (transport.rank() == 2) {
        std::vector<std::uint64_t> values;
        control.gather(std::uint64_t{0}, values);
      } else {
        std::vector<std::uint32_t> values;
        control.gather(std::uint32_t{0}, values);
      }
    });
    EXPECT_NE(error.find("another call"), std::string::npos) << error;
  });
}

// The rank that sends it throws NotAStar, and the others hear of it.
TEST(AStar, RefusesMessagesBetweenOtherRanks) {
  std::atomic<int> refused = 0;
  std::atomic<int> told = 0;
  run_on_threads(3, [&](Transport& transport) {
    StarTransport star(transport);
    try {
      star.barrier();
    } catch (const NotAStar&) {
      ++refused;
    } catch (const TransportError&) {
      ++told;
    }
  });
  EXPECT_GE(refused, 1);
  EXPECT_EQ(refused + told, 3);
}

TEST(ThreadTransportFailures, AWorkerThatThrowsIsNamedAndItsErrorRethrown) {
  std::atomic<int> told = 0;
  const auto body = [&](Transport& transport) {
    if (transport.rank() == 2) {
      transport.barrier();  // the others may still be in theirs when this rank throws
      throw std::out_of_range("my own fault");
    }
    const std::string error = error_that_names(2, [&] {
      while (true) transport.barrier();
    });
    EXPECT_NE(error.find("my own fault"), std::string::npos) << error;
    ++told;
  };
  EXPECT_THROW(run_on_threads(5, body), std::out_of_range);
  EXPECT_EQ(told, 4);
}

// Also ranks that do not communicate with the lost one.
TEST(ThreadTransportFailures, AllRanksFailInTheirNextCall) {
  ThreadGroup group(3);
  group.mark_lost(2, "a test");
  std::vector<Bytes> all;
  Bytes bytes;
  EXPECT_NE(error_that_names(2, [&] { group.at(0).gather(0, bytes, all); }), "");
  EXPECT_NE(error_that_names(2, [&] { group.at(1).send_receive({}, {}); }), "");
}

TEST(ThreadTransportFailures, WaitingForARankThatHasEndedIsAnError) {
  run_on_threads(4, waiting_for_a_rank_that_has_ended);
}

// ---- Time ----

constexpr milliseconds kDeadline = std::chrono::minutes(5);

// In real time: rank 1 makes no call before rank 0 has failed, however long that takes.
TEST(DeadlinesOfThreads, PassInRealTimeToo) {
  Meeting meeting(2);
  run_on_threads(2, meeting.watched([&](Transport& transport) {
    if (transport.rank() == 1) meeting.arrive_and_wait();
    EXPECT_NE(error_that_names(1, [&] { transport.barrier(); }), "");
    if (transport.rank() == 0) meeting.arrive_and_wait();
  }),
                 milliseconds(50));
}

TEST(DeadlinesOfThreads, PassAtTheDeadlineAndNotBefore) {
  for (const milliseconds late : {kDeadline - milliseconds(1), kDeadline + milliseconds(1)}) {
    SCOPED_TRACE(late.count());
    run_on_virtual_time(
        2,
        [&](Transport& transport) {
          VirtualTime& time = *VirtualRank::own().time;
          transport.barrier();
          if (transport.rank() == 1) time.sleep(1, late);
          EXPECT_EQ(error_that_names(1, [&] { transport.barrier(); }).empty(), late < kDeadline);
        },
        kDeadline);
  }
}

// All ranks were suspended while rank 0 waited: before the deadline, and for many times as long.
TEST(DeadlinesOfThreads, DoNotCountTheTimeInWhichTheProcessWasSuspended) {
  run_on_virtual_time(
      3,
      [&](Transport& transport) {
        VirtualTime& time = *VirtualRank::own().time;
        transport.barrier();
        if (transport.rank() == 1) {
          for (int i = 0; i < 3; ++i) {
            time.sleep(1, kDeadline / 4);  // the others wait
            time.suspend(3 * kDeadline);
          }
        }
        transport.barrier();
      },
      kDeadline);
}

// What was waited before and after counts.
TEST(DeadlinesOfThreads, FindALateRankAlsoAfterASuspension) {
  run_on_virtual_time(
      2,
      [&](Transport& transport) {
        VirtualTime& time = *VirtualRank::own().time;
        transport.barrier();
        if (transport.rank() == 1) {
          time.sleep(1, kDeadline / 2);
          time.suspend(3 * kDeadline);
          time.sleep(1, kDeadline);
        }
        EXPECT_NE(error_that_names(1, [&] { transport.barrier(); }), "");
      },
      kDeadline);
}

// The clock goes on by less than a suspension, again and again, while nobody looks: rank 0 got no processor. When it
// gets one it looks some times more, and meanwhile rank 1 comes.
TEST(DeadlinesOfThreads, AreLookedAtSomeTimesBeforeARankIsBlamed) {
  constexpr milliseconds kShort(800);
  run_on_virtual_time(
      2,
      [&](Transport& transport) {
        VirtualTime& time = *VirtualRank::own().time;
        transport.barrier();
        if (transport.rank() == 1) {
          time.sleep(1, kShort / 4);
          time.suspend(std::chrono::milliseconds(1000));  // too short to be taken for a suspension
          time.sleep(1, kShort / 4);
        }
        EXPECT_EQ(error_that_names(1, [&] { transport.barrier(); }), "");
      },
      kShort);
}

TEST(VirtualTimeOfTests, FailsWhenAllRanksWaitForEver) {
  EXPECT_THROW(run_on_virtual_time(
                   2,
                   [](Transport& transport) {
                     if (transport.rank() == 0) VirtualRank::own().meet();
                   },
                   kDeadline),
               std::logic_error);
}

TEST(MeetingsOfTests, EndWhenARankFailedBefore) {
  Meeting meeting(2);
  EXPECT_THROW(run_on_threads(2, meeting.watched([&](Transport& transport) {
                 if (transport.rank() == 1) throw std::out_of_range("my own fault");
                 EXPECT_THROW(meeting.arrive_and_wait(), std::runtime_error);
               })),
               std::out_of_range);
}

TEST(ThreadTransportFailures, RefusesASizeOutOfRange) {
  EXPECT_THROW(ThreadGroup(0), UsageError);
  EXPECT_THROW(run_on_threads(1025, [](Transport&) {}), UsageError);
}

TEST(ThreadTransportFailures, RefusesARankOutOfRange) {
  ThreadGroup group(3);
  for (const int rank : {-1, 3}) {
    EXPECT_THROW(group.at(rank), UsageError);
    EXPECT_THROW(group.mark_done(rank), UsageError);
    EXPECT_THROW(group.mark_lost(rank, "a test"), UsageError);
  }
}

TEST(ThreadTransportFailures, RefusesADeadlineOutOfRange) {
  for (const milliseconds deadline : {milliseconds(-1), milliseconds(0), milliseconds::min(), milliseconds::max()}) {
    EXPECT_THROW(ThreadGroup(2, deadline), UsageError);
  }
  run_on_threads(2, conformance::all_gather, std::chrono::hours(10'000));
}

}  // namespace
}  // namespace sparsewire::transport_test
