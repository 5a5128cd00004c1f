// One message to or from one rank. Short messages go whole; of a long one the length goes first, then its segments.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/mpi/channel.h"

namespace sparsewire::mpi {

// The requests of one message that are not complete yet, in the order of its segments. There are several at a time
// because each segment may need a handshake before it is sent, and the network must not be idle meanwhile.
class OutstandingRequests {
 public:
  bool is_empty() const { return started_ == completed_; }
  bool is_full() const { return started_ - completed_ == requests_.size(); }
  // For the next segment. REQUIRES: not full.
  MPI_Request* add() { return &requests_[started_++ % requests_.size()]; }
  // Returns whether a request has completed since the last time.
  bool test(int rank);

 private:
  std::array<MPI_Request, 8> requests_;
  std::size_t started_ = 0;
  std::size_t completed_ = 0;
};

class SendMessage {
 public:
  // `bytes` must stay valid until the message is complete.
  SendMessage(int rank, std::span<const std::byte> bytes) : rank_(rank), unsent_(bytes) {}

  int rank() const { return rank_; }
  bool is_complete() const { return is_complete_; }

  // `length` must stay valid until the message is complete.
  void start(const Channel& channel, std::size_t segment_bytes, std::uint64_t& length);
  // Sends more segments if it can. Returns whether a request has completed.
  bool progress(const Channel& channel, std::size_t segment_bytes);

 private:
  void send_segment(const Channel& channel, std::size_t count, int kind);

  int rank_;
  std::span<const std::byte> unsent_;  // not yet passed to MPI
  OutstandingRequests requests_;
  bool is_complete_ = false;
};

class ReceiveMessage {
 public:
  ReceiveMessage(int rank, std::vector<std::byte>& bytes) : rank_(rank), bytes_(&bytes) {}

  int rank() const { return rank_; }
  bool is_complete() const { return is_complete_; }

  // Receives the beginning of the message, and then its segments. Returns whether something has arrived.
  bool progress(const Channel& channel, std::size_t segment_bytes);
  // After a failure MPI may still write to the bytes, so they must no longer be the caller's: moves them to `kept` if
  // a request is not complete. The caller's vector is empty afterwards.
  void abandon(std::vector<std::vector<std::byte>>& kept);

 private:
  bool probe(const Channel& channel);

  int rank_;
  std::vector<std::byte>* bytes_;
  bool has_size_ = false;      // the length is known, and `bytes` has it
  std::size_t requested_ = 0;  // bytes for which a receive was started
  OutstandingRequests requests_;
  bool is_complete_ = false;
};

}  // namespace sparsewire::mpi
