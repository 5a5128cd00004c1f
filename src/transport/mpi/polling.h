// MPI requests are polled, never waited for: only so can every call end within its deadline.
#pragma once

#include <mpi.h>

#include <chrono>
#include <optional>

namespace sparsewire::mpi {

using Clock = std::chrono::steady_clock;

// What to do between two polls: nothing at first, then yield to other ranks (there may be more ranks than processors),
// and after a while without progress sleep.
class Backoff {
 public:
  void reset() { polls_ = 0; }
  void pause();

 private:
  int polls_ = 0;
};

// Throws TransportError unless `code` is MPI_SUCCESS. `rank`: the other side, -1 if there is none.
void check(int code, int rank = -1);

// MPI_Test.
bool is_complete(MPI_Request& request, int rank = -1);

// Polls until the request is complete; false if it was not by `end`.
bool wait_until(std::optional<Clock::time_point> end, MPI_Request& request);

}  // namespace sparsewire::mpi
