// Takes the place of mpi.cc in a build without MPI.
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/mpi/segments.h"

namespace sparsewire {

bool has_mpi() noexcept { return false; }

std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline) {
  return make_mpi_transport_with_segments(deadline, kMpiSegmentBytes);
}

std::unique_ptr<Transport> make_mpi_transport_with_segments(std::chrono::milliseconds /*deadline*/,
                                                            std::size_t /*segment_bytes*/) {
  throw UsageError("[mpi] this build has no MPI: install it (Debian: libopenmpi-dev) and configure again");
}

}  // namespace sparsewire
