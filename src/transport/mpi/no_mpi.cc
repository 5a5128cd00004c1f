// In place of mpi.cc where there is no MPI.
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/mpi/pieces.h"

namespace sparsewire {

bool has_mpi() noexcept { return false; }

std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline) {
  return make_mpi_transport_in_pieces(deadline, kMpiPiece);
}

std::unique_ptr<Transport> make_mpi_transport_in_pieces(std::chrono::milliseconds /*deadline*/, std::size_t /*piece*/) {
  throw UsageError("[mpi] this build has no MPI");
}

}  // namespace sparsewire
