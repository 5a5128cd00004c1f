// The MPI resources of one transport: two communicators and the buffers of its requests.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "transport/mpi/polling.h"

namespace sparsewire::mpi {

// Ranks tell each other their state over a second communicator, which every rank reads while it waits.
struct ControlMessage {
  enum Kind : std::int32_t {
    waiting,  // half of my deadline has passed and I wait for `rank`: a rank that waits for me must report that one
    resumed,  // I no longer wait
    late,     // `rank` did not respond within the deadline: all calls fail from now on
    ended,    // likewise, because `rank` has ended
    differs,  // likewise, because `rank` called all_reduce_sum with another number of entries
    broken,   // likewise, because `rank` failed in another way
    done,     // I make no more calls: the last message of a transport. An error only for a rank that waits for me
  };
  std::int32_t kind;
  std::int32_t rank;
  std::int32_t generation = 0;  // set by Channel: which of its transports sent it
};

// What MPI reads from or writes to while a request is not complete. A request whose other side is lost may never
// complete and cannot be taken back (MPI_Cancel need not do anything). So these buffers are our own, not the caller's,
// and after a failure they are kept until the process ends.
struct PendingBuffers {
  std::vector<std::vector<std::byte>> sent;      // copies of what is sent, one for each message that differs
  std::vector<std::uint64_t> lengths;            // of the messages that are sent in segments
  std::vector<std::vector<std::byte>> received;  // incomplete when a call failed
};

// Lent to one transport at a time (see Session). MPI has a limited number of communicators, and freeing one is
// collective, but ranks may destroy their transports in any order.
//
// Messages that an earlier transport sent may arrive when a later one has the channel: the `done` of a slow rank, or a
// message that no rank received. So every message has the number of its transport, the generation, and those of an
// earlier generation are discarded.
class Channel {
 public:
  // `messages` and `control` are duplicates of the same communicator.
  Channel(MPI_Comm messages, MPI_Comm control);

  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm messages() const { return messages_; }

  // Between these a transport has the channel. close() tells all ranks, and frees the buffers unless MPI may still use
  // them.
  void open();
  void close() noexcept;
  bool is_open() const { return is_open_; }
  // Whether a new transport may have it, as far as this rank knows.
  bool is_free() const { return !is_open_ && !failed_; }

  // A call failed, and all ranks were told: no other transport may have the channel.
  void set_failed() { failed_ = true; }

  // The tag of a message of a kind in [0, 4) in this generation, and back.
  int tag(int kind) const;
  static int kind_of(int tag);
  bool is_current(int tag) const { return tag == this->tag(kind_of(tag)); }

  // The next control message that has arrived, and the rank that sent it.
  std::optional<std::pair<int, ControlMessage>> next_control_message();
  void send_to_all(ControlMessage message);

  // This transport makes no more calls.
  void notify_done() noexcept;

  PendingBuffers buffers;

 private:
  struct ControlSend {
    ControlMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm messages_;
  MPI_Comm control_;
  int rank_ = 0;
  int size_ = 1;
  bool is_open_ = false;
  bool failed_ = false;
  std::int32_t generation_ = 0;
  std::list<ControlSend> control_sends_;
};

}  // namespace sparsewire::mpi
