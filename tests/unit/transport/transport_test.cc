// Ranks as threads: what every transport must do, and what happens when a worker fails.
#include "sparsewire/transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>

#include "sparsewire/errors.h"
#include "transport/bodies.h"

namespace sparsewire::transport_test {
namespace {

using std::chrono::milliseconds;

// Long enough for a busy machine, short enough to wait for it.
constexpr milliseconds kShort(500);

class ThreadTransport : public testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Transport&)>& body) { run_on_threads(GetParam(), body); }
};

TEST_P(ThreadTransport, AllGathersUnequalMessages) { run(bodies::all_gather); }
TEST_P(ThreadTransport, SendsFromAllToAll) { run(bodies::all_to_all); }
TEST_P(ThreadTransport, GathersAndBroadcasts) { run(bodies::gather_and_broadcast); }
TEST_P(ThreadTransport, KeepsManyRoundsApart) { run(bodies::many_rounds); }
TEST_P(ThreadTransport, SumsInRankOrder) { run(bodies::sums); }
TEST_P(ThreadTransport, SumsBf16InRankOrder) { run(bodies::sums_of_bf16); }
TEST_P(ThreadTransport, TakesMessagesInAnyOrder) { run(bodies::messages_in_any_order); }
TEST_P(ThreadTransport, RefusesWrongArguments) { run(bodies::wrong_arguments); }
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadTransport, testing::Values(1, 2, 3, 5, 8));

TEST(ThreadTransportFailures, AWorkerThatThrowsIsNamedAndItsErrorRethrown) {
  std::atomic<int> told = 0;
  const auto body = [&](Transport& transport) {
    if (transport.rank() == 2) {
      transport.barrier();  // the others may still be in theirs when this rank throws
      throw std::out_of_range("my own fault");
    }
    const std::string error = bodies::error_that_names(2, [&] {
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
  std::vector<bodies::Bytes> all;
  bodies::Bytes bytes;
  EXPECT_NE(bodies::error_that_names(2, [&] { group.at(0).gather(0, bytes, all); }), "");
  EXPECT_NE(bodies::error_that_names(2, [&] { group.at(1).send_receive({}, {}); }), "");
}

TEST(ThreadTransportFailures, AllRanksNameTheLateOne) {
  for (const auto& call : bodies::calls()) {
    std::barrier met(4);
    std::atomic<int> ended = 0;
    run_on_threads(
        4,
        [&](Transport& transport) {
          bodies::a_late_rank(
              transport, 2, [&] { met.arrive_and_wait(); }, call);
          ++ended;
        },
        kShort);
    EXPECT_EQ(ended, 4);
  }
}

TEST(ThreadTransportFailures, WaitingForARankThatHasEndedIsAnError) {
  run_on_threads(4, bodies::waiting_for_a_rank_that_has_ended);
}

TEST(ThreadTransportFailures, SumsOfDifferentSizesFailOnAllRanks) {
  run_on_threads(3, bodies::sums_of_different_sizes);
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
  run_on_threads(2, bodies::all_gather, std::chrono::hours(10'000));
}

}  // namespace
}  // namespace sparsewire::transport_test
