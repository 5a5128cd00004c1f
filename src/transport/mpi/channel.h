// The MPI resources of one transport: two communicators and the buffers of its requests.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "transport/mpi/polling.h"

namespace sparsewire::mpi {

// Ranks tell each other their state over a second communicator, which every rank reads while it waits.
struct ControlMessage {
  enum Kind : std::int32_t {
    status,  // I am in a call, and made progress `age_ms` ago; `missing`: the ranks that I wait for, none after the
             // call
    late,    // `rank` was silent for the deadline: all calls fail from now on
    ended,   // likewise, because `rank` has ended
    failed,  // likewise, because I called fail(); `text` says why
    done,    // I make no more calls: the last message of a transport. An error only for a rank that waits for me
  };
  std::int32_t kind = status;
  std::int32_t rank = -1;
  std::int32_t age_ms = 0;
  std::vector<std::int32_t> missing = {};
  std::string text = {};
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

  // Takes the next control message that has arrived. Returns the rank that sent it, or nothing.
  std::optional<int> next_control_message(ControlMessage& message);
  void send_to_all(const ControlMessage& message);
  // Waits until the control messages are sent, for a tenth of a second at most: the last ones must not wait for the
  // next call.
  void finish_sending();

  // This transport makes no more calls.
  void notify_done() noexcept;

  PendingBuffers buffers;

 private:
  struct ControlSend {
    std::vector<std::byte> bytes;
    std::vector<MPI_Request> requests;  // one for each other rank
  };

  MPI_Comm messages_;
  MPI_Comm control_;
  int rank_ = 0;
  int size_ = 1;
  bool is_open_ = false;
  bool failed_ = false;
  std::int32_t generation_ = 0;
  std::list<ControlSend> control_sends_;
  std::vector<std::byte> control_received_;
};

}  // namespace sparsewire::mpi
