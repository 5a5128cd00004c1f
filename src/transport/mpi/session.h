// MPI as this process uses it: initialised once, finalised at the end of the program, and the channels in between.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "sparsewire/transport.h"
#include "transport/mpi/channel.h"

namespace sparsewire::mpi {

// There is one, and it is never destroyed: requests to lost ranks end with the process.
class Session {
 public:
  static Session& get();

  // Before the first transport is made. Throws UsageError, TransportError.
  void initialise(std::chrono::milliseconds deadline);

  // Collective: a channel for a new transport, the same one on all ranks, until release(). Ranks may release their
  // channels in any order; one that all of them have released is used again. Throws TransportError.
  Channel& acquire();
  void release(Channel& channel) noexcept;

  void set_peer_lost() { peer_lost_ = true; }

 private:
  Channel& find_or_create(Clock::time_point end);
  MPI_Comm duplicate(MPI_Comm comm, Clock::time_point end);
  void wait_for_all_ranks(MPI_Request& request, Clock::time_point end);
  void finalise() noexcept;

  std::chrono::milliseconds deadline_ = kDefaultDeadline;
  bool peer_lost_ = false;
  bool acquire_failed_ = false;  // then ranks no longer make the same collective calls on all_
  MPI_Comm all_ = MPI_COMM_NULL;
  std::vector<std::unique_ptr<Channel>> channels_;  // in the same order on all ranks

  // MPI writes to these when a request completes, which may be never.
  std::list<MPI_Comm> communicators_;
  std::uint64_t free_here_ = 0;
  std::uint64_t free_everywhere_ = 0;
};

}  // namespace sparsewire::mpi
