#include "transport/mpi/channel.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>

namespace sparsewire::mpi {
namespace {

constexpr int kKinds = 4;
constexpr int kGenerations = 8192;  // MPI guarantees tags up to 32767

// A control message as it is sent: this, then the missing ranks and the text.
struct ControlHeader {
  std::int32_t generation;  // which of the channel's transports sent it
  std::int32_t kind;
  std::int32_t rank;
  std::int32_t age_ms;
  std::uint32_t missing;
};

}  // namespace

Channel::Channel(MPI_Comm messages, MPI_Comm control) : messages_(messages), control_(control) {
  check(MPI_Comm_rank(messages_, &rank_));
  check(MPI_Comm_size(messages_, &size_));
}

int Channel::tag(int kind) const { return generation_ % kGenerations * kKinds + kind; }

int Channel::kind_of(int tag) { return tag % kKinds; }

void Channel::open() {
  is_open_ = true;
  ++generation_;
}

void Channel::close() noexcept {
  is_open_ = false;
  if (failed_) return;
  buffers = {};  // all their requests are complete, or the channel would have failed
  notify_done();
}

std::optional<int> Channel::next_control_message(ControlMessage& message) {
  while (true) {
    int arrived = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, 0, control_, &arrived, &handle, &status));
    if (arrived == 0) return std::nullopt;
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count), status.MPI_SOURCE);
    control_received_.resize(static_cast<std::size_t>(count));
    check(MPI_Mrecv(control_received_.data(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE), status.MPI_SOURCE);

    ControlHeader header{};
    const std::byte* next = control_received_.data();
    std::memcpy(&header, next, sizeof header);
    if (header.generation != generation_) continue;
    next += sizeof header;
    message.kind = header.kind;
    message.rank = header.rank;
    message.age_ms = header.age_ms;
    message.missing.resize(header.missing);
    if (header.missing != 0) std::memcpy(message.missing.data(), next, header.missing * sizeof(std::int32_t));
    next += header.missing * sizeof(std::int32_t);
    const std::byte* const end = control_received_.data() + control_received_.size();
    message.text.assign(reinterpret_cast<const char*>(next), static_cast<std::size_t>(end - next));
    return status.MPI_SOURCE;
  }
}

void Channel::send_to_all(const ControlMessage& message) {
  control_sends_.remove_if([](ControlSend& send) {
    return std::all_of(send.requests.begin(), send.requests.end(), [](MPI_Request& r) { return is_complete(r); });
  });
  ControlSend& send = control_sends_.emplace_back();
  const ControlHeader header{generation_, message.kind, message.rank, message.age_ms,
                             static_cast<std::uint32_t>(message.missing.size())};
  const auto append = [&](const auto& bytes) { send.bytes.insert(send.bytes.end(), bytes.begin(), bytes.end()); };
  append(std::as_bytes(std::span(&header, 1)));
  append(std::as_bytes(std::span(message.missing)));
  append(std::as_bytes(std::span(message.text)));
  send.requests.assign(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    check(MPI_Isend(send.bytes.data(), static_cast<int>(send.bytes.size()), MPI_BYTE, r, 0, control_,
                    &send.requests[static_cast<std::size_t>(r)]),
          r);
  }
}

void Channel::finish_sending() {
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(100);
  for (ControlSend& send : control_sends_) {
    for (MPI_Request& request : send.requests) wait_until(end, request);
  }
}

void Channel::notify_done() noexcept {
  if (failed_) return;
  try {
    send_to_all({.kind = ControlMessage::done, .rank = rank_});
    finish_sending();
  } catch (const std::exception&) {
    failed_ = true;  // the other ranks will notice
  }
}

}  // namespace sparsewire::mpi
