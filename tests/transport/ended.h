// What our transports do when a rank has ended, on threads and on MPI.
#pragma once

#include "sparsewire/testing/transport_conformance.h"

namespace sparsewire {

// The last rank makes fewer calls than the others.
inline void waiting_for_a_rank_that_has_ended(Transport& transport) {
  const int gone = transport.size() - 1;
  transport.barrier();
  if (transport.rank() == gone) return;
  const std::string error = conformance::error_that_names(gone, [&] { transport.barrier(); });
  EXPECT_NE(error.find("has ended"), std::string::npos) << error;
}

}  // namespace sparsewire
