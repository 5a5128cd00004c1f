// How long messages are cut for MPI; a header of its own so that tests can use small segments.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "sparsewire/transport.h"

namespace sparsewire {

// MPI counts in int, so a segment must be shorter than 2^31 bytes. This is far below that: Open MPI sends a message of
// more than 64 kB over TCP with a handshake and then as a whole, and the handshake waits behind the data that goes the
// other way. Two hosts that sent each other 10 MB at 100 Mbit/s in both directions took 1.6 s with segments of 256 kB
// or 4 MB and 0.84 s with these; the wire alone needs 0.84 s
// (tools/netlab build/release/tests/mpi_program time 10000000).
inline constexpr std::size_t kMpiSegmentBytes = std::size_t{60} << 10;

// make_mpi_transport with segments of another size. REQUIRES: 1 <= segment_bytes < 2^31.
std::unique_ptr<Transport> make_mpi_transport_with_segments(std::chrono::milliseconds deadline,
                                                            std::size_t segment_bytes);

}  // namespace sparsewire
