#include "transport/mpi/messages.h"

#include <algorithm>

namespace sparsewire::mpi {
namespace {

// The kinds of messages, for Channel::tag.
constexpr int kWhole = 1;
constexpr int kLength = 2;
constexpr int kSegment = 3;

// Receives and drops a message that an earlier transport sent and no rank received.
void discard(MPI_Message& handle, const MPI_Status& status, int rank) {
  int count = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &count), rank);
  std::vector<std::byte> discarded(static_cast<std::size_t>(count));
  check(MPI_Mrecv(discarded.data(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE), rank);
}

}  // namespace

bool OutstandingRequests::test(int rank) {
  const std::size_t before = completed_;
  while (!is_empty() && mpi::is_complete(requests_[completed_ % requests_.size()], rank)) ++completed_;
  return completed_ != before;
}

void SendMessage::start(const Channel& channel, std::size_t segment_bytes, std::uint64_t& length) {
  if (unsent_.size() <= segment_bytes) {
    send_segment(channel, unsent_.size(), kWhole);
    return;
  }
  length = unsent_.size();
  check(MPI_Isend(&length, 1, MPI_UINT64_T, rank_, channel.tag(kLength), channel.messages(), requests_.add()), rank_);
}

bool SendMessage::progress(const Channel& channel, std::size_t segment_bytes) {
  if (is_complete_) return false;
  const bool progress = requests_.test(rank_);
  while (!unsent_.empty() && !requests_.is_full()) {
    send_segment(channel, std::min(segment_bytes, unsent_.size()), kSegment);
  }
  is_complete_ = requests_.is_empty();
  return progress;
}

void SendMessage::send_segment(const Channel& channel, std::size_t count, int kind) {
  check(MPI_Isend(unsent_.data(), static_cast<int>(count), MPI_BYTE, rank_, channel.tag(kind), channel.messages(),
                  requests_.add()),
        rank_);
  unsent_ = unsent_.subspan(count);
}

bool ReceiveMessage::progress(const Channel& channel, std::size_t segment_bytes) {
  if (is_complete_) return false;
  const bool progress = has_size_ ? requests_.test(rank_) : probe(channel);
  if (!has_size_) return progress;
  while (requested_ < bytes_->size() && !requests_.is_full()) {
    const std::size_t count = std::min(segment_bytes, bytes_->size() - requested_);
    check(MPI_Irecv(bytes_->data() + requested_, static_cast<int>(count), MPI_BYTE, rank_, channel.tag(kSegment),
                    channel.messages(), requests_.add()),
          rank_);
    requested_ += count;
  }
  is_complete_ = requests_.is_empty();
  return progress || is_complete_;
}

// Whether a message has arrived: whole, or its length.
bool ReceiveMessage::probe(const Channel& channel) {
  int arrived = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(rank_, MPI_ANY_TAG, channel.messages(), &arrived, &handle, &status), rank_);
  if (arrived == 0) return false;
  if (!channel.is_current(status.MPI_TAG)) {
    discard(handle, status, rank_);
    return true;
  }
  if (Channel::kind_of(status.MPI_TAG) == kLength) {
    std::uint64_t length = 0;
    check(MPI_Mrecv(&length, 1, MPI_UINT64_T, &handle, MPI_STATUS_IGNORE), rank_);
    bytes_->resize(length);
  } else {
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count), rank_);
    bytes_->resize(static_cast<std::size_t>(count));
    requested_ = bytes_->size();
    check(MPI_Imrecv(bytes_->data(), count, MPI_BYTE, &handle, requests_.add()), rank_);
  }
  has_size_ = true;
  return true;
}

void ReceiveMessage::abandon(std::vector<std::vector<std::byte>>& kept) {
  if (!requests_.is_empty()) kept.push_back(std::move(*bytes_));
  bytes_->clear();
}

}  // namespace sparsewire::mpi
