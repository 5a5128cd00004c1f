// In what pieces long messages go over MPI; a header of its own so that tests can make them small.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "sparsewire/transport.h"

namespace sparsewire {

// MPI counts in int, so a piece must stay below 2^31 bytes. Far below: a piece that is done is the only progress that
// can be seen, and who sees none for a while goes to sleep between two looks. A multiple of four, for the numbers that
// are reduced.
inline constexpr std::size_t kMpiPiece = std::size_t{4} << 20;

// make_mpi_transport with pieces of another size. REQUIRES: `piece` is a multiple of four from 4 to 2^30.
std::unique_ptr<Transport> make_mpi_transport_in_pieces(std::chrono::milliseconds deadline, std::size_t piece);

}  // namespace sparsewire
