// In what pieces long messages go over MPI; a header of its own so that tests can make them small.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "sparsewire/transport.h"

namespace sparsewire {

// MPI counts in int, so a piece must stay below 2^31 bytes. Far below: what is longer than 64 kB Open MPI sends over
// TCP in one go, after asking, and the answer waits behind what goes the other way. Two hosts that sent each other 10
// MB at 100 Mbit/s in both directions took 1.6 s with pieces of 256 kB or 4 MB, 0.84 s with these, and the wire needs
// 0.84 s (tools/netlab build/release/tests/mpi_program time 10000000).
inline constexpr std::size_t kMpiPiece = std::size_t{60} << 10;

// make_mpi_transport with pieces of another size. REQUIRES: 1 <= piece < 2^31.
std::unique_ptr<Transport> make_mpi_transport_in_pieces(std::chrono::milliseconds deadline, std::size_t piece);

}  // namespace sparsewire
