#include "transport/mpi/channel.h"

#include <array>
#include <exception>

namespace sparsewire::mpi {
namespace {

constexpr int kKinds = 4;
constexpr int kGenerations = 8192;  // MPI guarantees tags up to 32767
constexpr int kControlInts = 3;     // ControlMessage as MPI sends it
static_assert(sizeof(ControlMessage) == kControlInts * sizeof(std::int32_t));

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

std::optional<std::pair<int, ControlMessage>> Channel::next_control_message() {
  while (true) {
    int arrived = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, 0, control_, &arrived, &handle, &status));
    if (arrived == 0) return std::nullopt;
    std::array<std::int32_t, kControlInts> received{};
    check(MPI_Mrecv(received.data(), kControlInts, MPI_INT32_T, &handle, MPI_STATUS_IGNORE), status.MPI_SOURCE);
    const ControlMessage message{received[0], received[1], received[2]};
    if (message.generation == generation_) return std::pair(status.MPI_SOURCE, message);
  }
}

void Channel::send_to_all(ControlMessage message) {
  message.generation = generation_;
  control_sends_.remove_if([](ControlSend& send) { return is_complete(send.request); });
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    ControlSend& send = control_sends_.emplace_back(ControlSend{message});
    check(MPI_Isend(&send.message, kControlInts, MPI_INT32_T, r, 0, control_, &send.request), r);
  }
}

void Channel::notify_done() noexcept {
  if (failed_) return;
  try {
    send_to_all({ControlMessage::done, rank_});
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(100);
    for (ControlSend& send : control_sends_) wait_until(end, send.request);
  } catch (const std::exception&) {
    failed_ = true;  // the other ranks will notice
  }
}

}  // namespace sparsewire::mpi
