// MPI as this process uses it: its beginning and end, and the control that ranks send each other besides messages.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sparsewire/transport.h"

namespace sparsewire::mpi {

using Clock = std::chrono::steady_clock;

// Between two looks: nothing at first, then let other ranks have the processor (there may be more ranks than
// processors), and after a while without any progress sleep.
class Backoff {
 public:
  void progress() { looks_ = 0; }
  void pause();

 private:
  int looks_ = 0;
};

// Throws TransportError unless the code is that of success. `rank`: with whom.
void check(int code, int rank = -1);
bool is_done(MPI_Request& request, int rank = -1);

// Ranks tell each other how they are on a communicator of its own, which every rank reads while it waits.
struct ControlMessage {
  enum Kind : std::int32_t {
    waiting,  // half of my deadline is over, and I wait for `rank`: whoever waits for me must blame that rank instead
    resumed,  // I wait no longer
    late,     // `rank` did not come within the deadline: all calls fail from now on
    gone,     // likewise, because `rank` has ended
    differs,  // likewise, because `rank` sums another number of entries
    broken,   // likewise, because `rank` failed in another way
    done,     // I make no more calls; an error only for a rank that still waits for me
  };
  std::int32_t kind;
  std::int32_t rank;
};

// A control message that is being sent.
struct PostedMessage {
  ControlMessage message;
  MPI_Request request = MPI_REQUEST_NULL;
};

// The communicators of one transport, and the buffers that MPI may still use after the transport was destroyed.
struct PendingBuffers {
  MPI_Comm messages = MPI_COMM_NULL;
  MPI_Comm control = MPI_COMM_NULL;  // for ControlMessage
  int rank = 0;
  int size = 1;
  bool failed = false;  // all ranks were told
  std::list<PostedMessage> posted;
  std::vector<std::vector<std::byte>> sent;        // copies of what goes out, one for each message that differs
  std::vector<std::uint64_t> lengths;              // of the long ones among them
  std::vector<std::vector<std::byte>> unfinished;  // receives that were under way when a call failed
};

// Who sent it, and what.
std::optional<std::pair<int, ControlMessage>> next_control_message(const PendingBuffers& pending);
void send_to_all(PendingBuffers& pending, ControlMessage message);

// There is one, and it is never destroyed: requests to lost ranks end with the process.
class Session {
 public:
  static Session& get();

  // Before the first transport is made. Throws UsageError, TransportError.
  void initialise(std::chrono::milliseconds deadline);

  // Communicators for one transport, which gives them back with release(). They are kept until the end: control
  // messages may still arrive on them, and MPI would deliver those to the next communicator of the same number.
  std::unique_ptr<PendingBuffers> open();
  void release(std::unique_ptr<PendingBuffers> pending);

  void mark_peer_lost() { peer_lost_ = true; }

 private:
  MPI_Comm duplicate(MPI_Comm comm);
  void finalise() noexcept;

  std::chrono::milliseconds deadline_ = kDefaultDeadline;
  bool peer_lost_ = false;
  MPI_Comm all_ = MPI_COMM_NULL;
  std::list<MPI_Comm> made_;
  std::vector<PendingBuffers*> in_use_;
  std::vector<std::unique_ptr<PendingBuffers>> released_;
};

}  // namespace sparsewire::mpi
