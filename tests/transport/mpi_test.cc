// Ranks as processes: run by ctest as Mpi.Transport.N, under mpirun.
//
// Every rank runs all tests, so each of them is collective.
#include <gtest/gtest.h>
#include <mpi.h>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/bodies.h"
#include "transport/mpi/pieces.h"

namespace sparsewire {
namespace {

using std::chrono::milliseconds;

// A machine may be busy with other things.
constexpr milliseconds kShort(1000);

void run(const std::function<void(Transport&)>& body) { body(*make_mpi_transport()); }

TEST(MpiTransport, IsThere) { EXPECT_TRUE(has_mpi()); }
TEST(MpiTransport, AllGathersUnequalMessages) { run(bodies::all_gather); }
TEST(MpiTransport, MovesFromAllToAll) { run(bodies::all_to_all); }
TEST(MpiTransport, GathersAndBroadcasts) { run(bodies::gather_and_broadcast); }
TEST(MpiTransport, KeepsManyRoundsApart) { run(bodies::many_rounds); }
TEST(MpiTransport, SumsInRankOrder) { run(bodies::sums); }
TEST(MpiTransport, SumsBf16InRankOrder) { run(bodies::sums_of_bf16); }

// As messages above 2 GB are cut, so are small ones into small pieces.
TEST(MpiTransport, CutsLongMessages) {
  for (const std::size_t piece : {4U, 100U}) {
    SCOPED_TRACE(piece);
    const auto transport = make_mpi_transport_in_pieces(kDefaultDeadline, piece);
    for (const std::size_t size : {piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 1, std::size_t{10'007}}) {
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

// The last rank, which waits in MPI but not for the transport.
TEST(MpiTransportFailures, ALateRankIsNamedByAll) {
  for (const auto& call : bodies::calls()) {
    const auto transport = make_mpi_transport(kShort);
    if (transport->size() == 1) return;
    bodies::a_late_rank(
        *transport, transport->size() - 1, [] { MPI_Barrier(MPI_COMM_WORLD); }, call);
  }
}

TEST(MpiTransportFailures, SumsOfDifferentSizesAreRefusedByAll) {
  const auto transport = make_mpi_transport(milliseconds(20'000));
  if (transport->size() > 1) bodies::sums_of_different_sizes(*transport);
}

TEST(MpiTransportFailures, RefusesADeadlineThatIsNone) {
  for (const milliseconds deadline : {milliseconds(-1), milliseconds(0), milliseconds::max()}) {
    EXPECT_THROW(make_mpi_transport(deadline), UsageError);
  }
}

TEST(MpiTransportFailures, WhoWaitsForOneThatHasEndedIsTold) {
  const auto transport = make_mpi_transport();
  bodies::who_waits_for_one_that_has_ended(*transport);
}

}  // namespace
}  // namespace sparsewire
