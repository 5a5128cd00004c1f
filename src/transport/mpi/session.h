// MPI as this process uses it: its beginning and end, and the notes that ranks send each other besides messages.
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
class Patience {
 public:
  void progress() { looks_ = 0; }
  void pause();

 private:
  int looks_ = 0;
};

// Throws TransportError unless the code is that of success. `rank`: with whom.
void check(int code, int rank = -1);
bool is_done(MPI_Request& request, int rank = -1);

// Ranks tell each other things on a communicator of their own, which everybody who waits looks at.
struct Note {
  enum Kind : std::int32_t {
    waiting,   // half of my deadline is over, and I wait for that rank: whoever waits for me shall blame it instead
    going_on,  // I wait no longer
    late,      // that rank did not come: all calls fail from now on
    gone,      // likewise, but because it has ended
    differs,   // likewise, but because it sums up another number of entries
    broken,    // likewise, but because something else went wrong there
    ended,     // I am done; nothing is wrong unless somebody waits for me
  };
  std::int32_t kind;
  std::int32_t rank;
};

// A note on its way.
struct Posted {
  Note note;
  MPI_Request request = MPI_REQUEST_NULL;
};

// What MPI may still look at when the transport is no more.
struct Kept {
  MPI_Comm messages = MPI_COMM_NULL;
  MPI_Comm notes = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  bool failed = false;  // everybody knows
  std::list<Posted> posted;
  std::vector<std::vector<std::byte>> sent;   // copies of what goes out, one for each message that differs
  std::vector<std::uint64_t> lengths;         // of the long ones among them
  std::vector<std::vector<std::byte>> taken;  // what was coming in when a call failed
};

// Who sent it, and what.
std::optional<std::pair<int, Note>> next_note(const Kept& kept);
void tell_all(Kept& kept, Note note);

// There is one, which is never destroyed: requests of lost peers end with the process.
class Session {
 public:
  static Session& get();

  // Before the first transport is made. Throws UsageError, TransportError.
  void begin(std::chrono::milliseconds deadline);

  // Communicators for one transport; it gives them back, and they are kept: notes may still come on them, and MPI would
  // give those to the next communicator of that number.
  std::unique_ptr<Kept> connect();
  void keep(std::unique_ptr<Kept> kept);

  void a_peer_was_lost() { has_lost_a_peer_ = true; }

 private:
  MPI_Comm duplicate(MPI_Comm comm);
  void leave() noexcept;

  std::chrono::milliseconds deadline_ = kDefaultDeadline;
  bool has_lost_a_peer_ = false;
  MPI_Comm all_ = MPI_COMM_NULL;
  std::list<MPI_Comm> made_;
  std::vector<Kept*> in_use_;
  std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace sparsewire::mpi
