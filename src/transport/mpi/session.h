// MPI as this process uses it: initialised once, finalised at the end of the program, and the channels in between.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
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

  // Held while a thread uses MPI: fail() may come from another one.
  class Use {
   public:
    explicit Use(Session& session) : session_(session) { session_.in_use_.lock(); }
    ~Use() {
      session_.in_use_.unlock();
      session_.send_failures_if_free();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Session& session_;
  };

  // Tells all ranks that this one failed. From any thread: if another one uses MPI, that one sends the message, in
  // send_failures() or at the end of its Use.
  void fail(Channel& channel, std::string text);
  // REQUIRES: this thread has a Use.
  void send_failures();

 private:
  void send_failures_if_free() noexcept;
  Channel& find_or_create(Clock::time_point end);
  MPI_Comm duplicate(MPI_Comm comm, Clock::time_point end);
  void wait_for_all_ranks(MPI_Request& request, Clock::time_point end);
  void finalise() noexcept;

  std::chrono::milliseconds deadline_ = kDefaultDeadline;
  bool peer_lost_ = false;
  bool acquire_failed_ = false;  // then ranks no longer make the same collective calls on all_
  MPI_Comm all_ = MPI_COMM_NULL;
  std::vector<std::unique_ptr<Channel>> channels_;  // in the same order on all ranks

  struct Failure {
    Channel* channel;
    std::string text;
  };
  std::mutex in_use_;
  std::mutex failures_mutex_;
  std::atomic<bool> has_failures_ = false;
  std::vector<Failure> failures_;  // not sent yet

  // MPI writes to these when a request completes, which may be never.
  std::list<MPI_Comm> communicators_;
  std::uint64_t free_here_ = 0;
  std::uint64_t free_everywhere_ = 0;
};

}  // namespace sparsewire::mpi
