// Ranks as processes: ctest runs this under mpirun as Mpi.Transport.N. Every rank runs all tests, so each test is
// collective.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/bodies.h"
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

// Long enough for a busy machine, short enough to wait for it.
constexpr milliseconds kShort(1000);

void run(const std::function<void(Transport&)>& body) { body(*make_mpi_transport()); }

TEST(MpiTransport, IsInThisBuild) { EXPECT_TRUE(has_mpi()); }
TEST(MpiTransport, AllGathersUnequalMessages) { run(bodies::all_gather); }
TEST(MpiTransport, SendsFromAllToAll) { run(bodies::all_to_all); }
TEST(MpiTransport, GathersAndBroadcasts) { run(bodies::gather_and_broadcast); }
TEST(MpiTransport, KeepsManyRoundsApart) { run(bodies::many_rounds); }
TEST(MpiTransport, SumsInRankOrder) { run(bodies::sums); }
TEST(MpiTransport, SumsBf16InRankOrder) { run(bodies::sums_of_bf16); }
TEST(MpiTransport, TakesMessagesInAnyOrder) { run(bodies::messages_in_any_order); }
TEST(MpiTransport, RefusesWrongArguments) { run(bodies::wrong_arguments); }

// Small messages in small segments take the same path as long ones in long segments.
TEST(MpiTransport, CutsLongMessagesIntoSegments) {
  for (const std::size_t segment : {4U, 100U}) {
    SCOPED_TRACE(segment);
    const auto transport = make_mpi_transport_with_segments(kDefaultDeadline, segment);
    for (const std::size_t size :
         {segment - 1, segment, segment + 1, 2 * segment, 2 * segment + 1, std::size_t{10'007}}) {
      SCOPED_TRACE(size);
      std::vector<bodies::Bytes> all;
      transport->all_gather(bodies::message(transport->rank(), 0, 0, size), all);
      for (int r = 0; r < transport->size(); ++r) {
        bodies::expect_same(all[static_cast<std::size_t>(r)], bodies::message(r, 0, 0, size));
      }
      std::vector<float> ones(size, 1.0F);
      transport->all_reduce_sum(ones);
      EXPECT_EQ(ones, std::vector<float>(size, static_cast<float>(transport->size())));
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

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
      return bodies::Bytes(kBytes, static_cast<std::byte>(64 * from + 16 * to + round));
    };
    std::vector<bodies::Bytes> to;
    std::vector<bodies::Bytes> from;
    for (int r = 0; r < transport->size(); ++r) to.push_back(content(transport->rank(), r));
    transport->all_to_all(to, from);
    for (int r = 0; r < transport->size(); ++r) {
      bodies::expect_same(from[static_cast<std::size_t>(r)], content(r, transport->rank()));
    }
  };
  for (int round = 0; round < 4; ++round) use_one(round);
  const std::size_t before = resident_bytes();
  for (int round = 4; round < 68; ++round) use_one(round);
  const std::size_t after = resident_bytes();
  if (kKeepsFreedMemory) GTEST_SKIP() << "a sanitizer keeps freed memory";
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
      bodies::messages_in_any_order(*made.back());
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
      const bodies::Bytes stray(size);
      const Transport::Outgoing out{(transport->rank() + 1) % transport->size(), stray};
      if (transport->size() > 1) transport->send_receive({&out, 1}, {});
    }
    const auto transport = make_mpi_transport();
    bodies::all_gather(*transport);
    bodies::many_rounds(*transport);
  }
}

// The late rank is the last one; it waits in MPI, but not in a call of the transport.
TEST(MpiTransportFailures, AllRanksNameTheLateOne) {
  for (const auto& call : bodies::calls()) {
    const auto transport = make_mpi_transport(kShort);
    if (transport->size() == 1) return;
    bodies::a_late_rank(
        *transport, transport->size() - 1, [] { MPI_Barrier(MPI_COMM_WORLD); }, call);
  }
}

TEST(MpiTransportFailures, SumsOfDifferentSizesFailOnAllRanks) {
  const auto transport = make_mpi_transport(milliseconds(20'000));
  if (transport->size() > 1) bodies::sums_of_different_sizes(*transport);
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
      const auto transport = make_mpi_transport(milliseconds(20'000));
      if (transport->size() > 1) bodies::sums_of_different_sizes(*transport);
    }
    run(bodies::all_gather);
  }
}

TEST(MpiTransportFailures, WaitingForARankThatHasEndedIsAnError) {
  const auto transport = make_mpi_transport();
  bodies::waiting_for_a_rank_that_has_ended(*transport);
}

}  // namespace
}  // namespace sparsewire
