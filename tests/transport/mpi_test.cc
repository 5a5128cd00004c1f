// Ranks as processes: ctest runs this under mpirun as Mpi.Transport.N. Every rank runs all tests, so each test is
// collective.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "effort.h"
#include "patience.h"
#include "sparsewire/errors.h"
#include "sparsewire/testing/transport_conformance.h"
#include "sparsewire/transport.h"
#include "transport/ended.h"
#include "transport/mpi/segments.h"

namespace {
int communicators_made = 0;
}  // namespace

// Takes the place of MPI's own function, which every MPI library has under this other name, too.
extern "C" int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  ++communicators_made;
  return PMPI_Comm_idup(comm, made, request);
}

namespace sparsewire {
namespace {

using std::chrono::milliseconds;

const milliseconds kShort = deadline_that_passes();
const milliseconds kLong = patient(std::chrono::seconds(60));  // passes only if a test fails

void run(const std::function<void(Transport&)>& body) { body(*make_mpi_transport()); }

conformance::Engine mpi_engine() {
  return {.name = "Mpi",
          .ranks = make_mpi_transport()->size(),
          .run = run,
          .run_with_deadline = [](const conformance::Body& body,
                                  milliseconds deadline) { body(*make_mpi_transport(deadline)); },
          .meet = [] { MPI_Barrier(MPI_COMM_WORLD); },
          .fail_reaches_all = true,
          .short_deadline = kShort};
}

TEST(MpiTransport, IsInThisBuild) { EXPECT_TRUE(has_mpi()); }

// One message in very small segments, long enough to take longer than the deadline. The other ranks wait for its
// receiver, and do not send or receive anything meanwhile.
TEST(MpiTransport, ALongTransferMayTakeLongerThanTheDeadline) {
  const auto transport = make_mpi_transport_with_segments(kShort, 4);
  if (transport->size() < 2) GTEST_SKIP() << "needs two ranks";
  for (std::size_t size = 1'000'000;; size *= 2) {
    const conformance::Bytes bytes = conformance::message(0, 1, 0, transport->rank() == 0 ? size : 0);
    const auto start = std::chrono::steady_clock::now();
    if (transport->rank() == 0) {
      const Transport::Outgoing out{1, bytes};
      transport->send_receive({&out, 1}, {});
    } else if (transport->rank() == 1) {
      conformance::Bytes received;
      const Transport::Incoming in{0, &received, size};
      transport->send_receive({}, {&in, 1});
      conformance::expect_same(received, conformance::message(0, 1, 0, size));
      for (int r = 2; r < transport->size(); ++r) conformance::send(*transport, r);
    } else {
      conformance::receive(*transport, 1);
    }
    conformance::Bytes is_long(std::chrono::steady_clock::now() - start > kShort ? 1 : 0);
    transport->broadcast(0, is_long);
    if (!is_long.empty()) return;
  }
}

// Small messages in small segments take the same path as long ones in long segments.
TEST(MpiTransport, CutsLongMessagesIntoSegments) {
  for (const std::size_t segment : {4U, 100U}) {
    SCOPED_TRACE(segment);
    const auto transport = make_mpi_transport_with_segments(kDefaultDeadline, segment);
    for (const std::size_t size :
         {segment - 1, segment, segment + 1, 2 * segment, 2 * segment + 1, std::size_t{10'007}}) {
      SCOPED_TRACE(size);
      std::vector<conformance::Bytes> all;
      transport->all_gather(conformance::message(transport->rank(), 0, 0, size), all);
      for (int r = 0; r < transport->size(); ++r) {
        conformance::expect_same(all[static_cast<std::size_t>(r)], conformance::message(r, 0, 0, size));
      }
      std::vector<float> ones(size, 1.0F);
      transport->all_reduce_sum(ones);
      EXPECT_EQ(ones, std::vector<float>(size, static_cast<float>(transport->size())));
    }
  }
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A job that makes a transport for each of many trainings must not grow with their number.
TEST(MpiTransportLifetime, FreesItsBuffers) {
  constexpr std::size_t kBytes = 500'000;
  const auto use_one = [](int round) {
    const auto transport = make_mpi_transport();
    const auto content = [&](int from, int to) {
      return conformance::Bytes(kBytes, static_cast<std::byte>(64 * from + 16 * to + round));
    };
    std::vector<conformance::Bytes> to;
    std::vector<conformance::Bytes> from;
    for (int r = 0; r < transport->size(); ++r) to.push_back(content(transport->rank(), r));
    transport->all_to_all(to, from);
    for (int r = 0; r < transport->size(); ++r) {
      conformance::expect_same(from[static_cast<std::size_t>(r)], content(r, transport->rank()));
    }
  };
  for (int round = 0; round < 4; ++round) use_one(round);
  const std::size_t before = resident_bytes();
  for (int round = 4; round < 68; ++round) use_one(round);
  const std::size_t after = resident_bytes();
  if (kSlowBuild) GTEST_SKIP() << "a sanitizer keeps freed memory";
  EXPECT_LT(after, before + 8'000'000);  // 64 * 0.5 MB for each other rank if they are kept
}

TEST(MpiTransportLifetime, ReusesItsCommunicators) {
  make_mpi_transport()->barrier();
  const int before = communicators_made;
  for (int i = 0; i < 100; ++i) make_mpi_transport()->barrier();
  EXPECT_EQ(communicators_made, before);
}

// Ranks may destroy their transports in different orders, and some of them only after the next one was made.
TEST(MpiTransportLifetime, MayEndInAnyOrder) {
  std::vector<std::unique_ptr<Transport>> kept;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    std::vector<std::unique_ptr<Transport>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(make_mpi_transport());
      conformance::messages_in_any_order(*made.back());
    }
    const int rank = made[0]->rank();
    if (rank % 2 == 0) std::reverse(made.begin(), made.end());
    if ((round + rank) % 3 == 0) kept = std::move(made);
    if ((round + rank) % 3 == 1) kept.clear();
  }
}

// The control message "done" of one transport may arrive when the next one already has its communicators. A rank that
// waits for longer than the grace time (100 ms) must not take it for the end of the new one.
TEST(MpiTransportLifetime, TheEndOfOneIsNotTheEndOfTheNext) {
  for (int round = 0; round < 5; ++round) {
    make_mpi_transport()->barrier();
    const auto transport = make_mpi_transport();
    if (transport->rank() == round % transport->size()) std::this_thread::sleep_for(milliseconds(300));
    transport->barrier();
  }
}

// A message that no rank receives is an error of the program, but the next transport must not receive it.
TEST(MpiTransportLifetime, TheNextDoesNotReceiveOldMessages) {
  for (const std::size_t size : {std::size_t{10}, std::size_t{300}}) {
    {
      const auto transport = make_mpi_transport_with_segments(kDefaultDeadline, 100);
      const conformance::Bytes stray(size);
      const Transport::Outgoing out{(transport->rank() + 1) % transport->size(), stray};
      if (transport->size() > 1) transport->send_receive({&out, 1}, {});
    }
    const auto transport = make_mpi_transport();
    conformance::all_gather(*transport);
    conformance::many_rounds(*transport);
  }
}

TEST(MpiTransportFailures, RefusesADeadlineOutOfRange) {
  for (const milliseconds deadline : {milliseconds(-1), milliseconds(0), milliseconds::max()}) {
    EXPECT_THROW(make_mpi_transport(deadline), UsageError);
  }
}

// After a failure all ranks can make a new transport, again and again.
TEST(MpiTransportFailures, ANewTransportWorksAfterAFailure) {
  for (int round = 0; round < 4; ++round) {
    {
      const auto transport = make_mpi_transport(kLong);
      if (transport->size() > 1) conformance::sums_of_different_numbers(*transport, false);
    }
    run(conformance::all_gather);
  }
}

// fail() of one transport, while another thread of this rank is in a long call of another transport: MPI allows one
// caller at a time, so that call has to send the message.
TEST(MpiTransportFailures, AFailureIsSentByACallOfAnotherTransport) {
  const auto used = make_mpi_transport();
  const auto failing = make_mpi_transport(kLong);
  if (used->size() == 1) GTEST_SKIP() << "needs two ranks";
  std::jthread other;
  if (used->rank() == 0) {
    other = std::jthread([&] {
      std::this_thread::sleep_for(milliseconds(20));  // so that most often this rank is in its call
      failing->fail("the disk is full");
    });
  } else {
    const std::string error = conformance::error_that_names(0, [&] { failing->barrier(); });
    EXPECT_NE(error.find("the disk is full"), std::string::npos) << error;
  }
  used->barrier();
}

TEST(MpiTransportFailures, WaitingForARankThatHasEndedIsAnError) {
  const auto transport = make_mpi_transport();
  waiting_for_a_rank_that_has_ended(*transport);
}

}  // namespace

namespace conformance {
INSTANTIATE_TEST_SUITE_P(MpiTransport, TransportConformance, testing::Values(mpi_engine()), name_of);
}  // namespace conformance
}  // namespace sparsewire

// A rank that fails ends the others at once: they would wait for it, in a barrier or in the next test.
class EndsTheJob final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fflush(nullptr);  // what failed was printed before
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
};

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new EndsTheJob);
  return RUN_ALL_TESTS();
}
