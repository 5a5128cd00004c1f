// Ranks as processes, on MPI 3. Only standard calls, all of them polled, so that every call ends within the deadline.
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/arguments.h"
#include "transport/deadline.h"
#include "transport/mpi/channel.h"
#include "transport/mpi/messages.h"
#include "transport/mpi/segments.h"
#include "transport/mpi/session.h"
#include "transport/watch.h"

namespace sparsewire {
namespace {

using mpi::Backoff;
using mpi::Channel;
using mpi::Clock;
using mpi::ControlMessage;
using mpi::PendingBuffers;
using mpi::ReceiveMessage;
using mpi::SendMessage;
using mpi::Session;

// `done` and a message before it go over different communicators, so the message may arrive later. It is given up only
// after so much time, or a quarter of the deadline, and so many polls: a process that got no processor for a while has
// not looked for it.
constexpr std::chrono::milliseconds kDoneGrace(2000);
constexpr int kDonePolls = 1000;
// See Watch.
constexpr int kLatePolls = 100;

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::chrono::milliseconds deadline, std::size_t segment_bytes)
      : deadline_(deadline), segment_bytes_(segment_bytes), channel_(acquire_channel(session_, deadline)) {
    done_.resize(static_cast<std::size_t>(size()));
  }

  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  ~MpiTransport() override { session_.release(channel_); }

  int rank() const noexcept override { return channel_.rank(); }
  int size() const noexcept override { return channel_.size(); }

  void fail(std::string_view why) noexcept override {
    try {
      Transport::fail(why);  // a call of this rank that is under way sees it
      session_.fail(channel_, failure_text(rank(), why));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks will notice
    }
  }

 protected:
  // If it throws, every later call fails as well, on all ranks: Transport remembers the error and calls fail().
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    const Session::Use use(session_);
    try {
      begin_call();
      start_messages(out, in);
      transfer();
      end_call();
    } catch (...) {
      channel_.set_failed();
      session_.set_peer_lost();
      for (ReceiveMessage& message : receives_) message.abandon(channel_.buffers.received);
      throw;
    }
  }

 private:
  static Channel& acquire_channel(Session& session, std::chrono::milliseconds deadline) {
    check_deadline(deadline);
    session.initialise(deadline);
    return session.acquire();
  }

  void begin_call() {
    sends_.clear();
    receives_.clear();
    read_control_messages();
    watch_.begin_call(Clock::now());
    backoff_.reset();
  }

  void transfer() {
    while (true) {
      bool progress = false;
      bool complete = true;
      for (SendMessage& message : sends_) {
        progress |= message.progress(channel_, segment_bytes_);
        complete &= message.is_complete();
      }
      for (ReceiveMessage& message : receives_) {
        progress |= message.progress(channel_, segment_bytes_);
        complete &= message.is_complete();
      }
      if (complete) return;
      const Clock::time_point now = Clock::now();
      if (progress) {
        watch_.note_progress(now);
        send_status_if_due(now);
        backoff_.reset();
      } else {
        check_peers(now);
        backoff_.pause();
      }
    }
  }

  void end_call() {
    sends_.clear();
    receives_.clear();  // they refer to memory of the caller
    if (watch_.has_sent_status()) channel_.send_to_all({.kind = ControlMessage::status});
  }

  // Copies what is sent (see PendingBuffers). What a rank sends to itself has arrived at once.
  void start_messages(std::span<const Outgoing> out, std::span<const Incoming> in) {
    PendingBuffers& buffers = channel_.buffers;
    std::span<const std::byte> own;
    std::span<const std::byte> last;
    std::size_t copies = 0;
    buffers.lengths.resize(std::max(buffers.lengths.size(), out.size()));
    for (const Outgoing& message : out) {
      if (message.rank == rank()) {
        own = message.bytes;
        continue;
      }
      // Ranks often send the same bytes to all others.
      if (copies == 0 || last.data() != message.bytes.data() || last.size() != message.bytes.size()) {
        if (copies == buffers.sent.size()) buffers.sent.emplace_back();
        buffers.sent[copies++].assign(message.bytes.begin(), message.bytes.end());
        last = message.bytes;
      }
      sends_.emplace_back(message.rank, buffers.sent[copies - 1]);
    }
    for (const Incoming& message : in) {
      if (message.rank == rank()) {
        message.bytes->assign(own.begin(), own.end());
      } else {
        receives_.emplace_back(message.rank, *message.bytes);
      }
    }
    for (std::size_t i = 0; i < sends_.size(); ++i) sends_[i].start(channel_, segment_bytes_, buffers.lengths[i]);
  }

  // While this rank waits: throws if another rank has failed or ended, or if all that it waits for were silent for the
  // deadline.
  void check_peers(Clock::time_point now) {
    session_.send_failures();
    throw_if_failed();
    read_control_messages();
    for_each_missing_rank([&](int rank) {
      auto& done = done_[static_cast<std::size_t>(rank)];
      if (done && ++done->polls >= kDonePolls && now >= done->at + std::min(kDoneGrace, deadline_ / 4)) {
        fail_on_all_ranks({.kind = ControlMessage::ended, .rank = rank});
      }
    });
    send_status_if_due(now);
    const auto late = watch_.find_late_rank(now, [&](std::vector<int>& missing) { list_missing_ranks(missing); });
    if (late) fail_on_all_ranks({.kind = ControlMessage::late, .rank = *late});
  }

  void send_status_if_due(Clock::time_point now) {
    if (!watch_.is_status_due(now)) return;
    status_.kind = ControlMessage::status;
    status_.age_ms = watch_.note_status(now);
    list_missing_ranks(status_.missing);
    channel_.send_to_all(status_);
  }

  void list_missing_ranks(std::vector<int>& missing) const {
    missing.clear();
    for_each_missing_rank([&](int rank) { missing.push_back(rank); });
  }

  template <class Visit>
  void for_each_missing_rank(Visit visit) const {
    for (const ReceiveMessage& message : receives_) {
      if (!message.is_complete()) visit(message.rank());
    }
    for (const SendMessage& message : sends_) {
      if (!message.is_complete()) visit(message.rank());
    }
  }

  // Throws if one of them says that this transport failed.
  void read_control_messages() {
    while (const auto from = channel_.next_control_message(received_)) {
      switch (received_.kind) {
        case ControlMessage::status:
          watch_.read_status(*from, received_.age_ms, received_.missing, Clock::now());
          break;
        case ControlMessage::done:
          done_[static_cast<std::size_t>(*from)] = Done{Clock::now()};
          break;
        default:
          throw failure_of(*from, received_);
      }
    }
  }

  [[noreturn]] void fail_on_all_ranks(const ControlMessage& message) {
    channel_.send_to_all(message);
    throw failure_of(rank(), message);
  }

  // `reporter`: the rank that sent the control message.
  TransportError failure_of(int reporter, const ControlMessage& message) const {
    switch (message.kind) {
      case ControlMessage::ended:
        return {fmt::format("rank {} has ended; rank {} was waiting for it", message.rank, reporter), message.rank};
      case ControlMessage::failed:
        return {message.text, message.rank};
      default:
        return {fmt::format("rank {} did not respond within {} ms; rank {} was waiting for it", message.rank,
                            deadline_.count(), reporter),
                message.rank};
    }
  }

  Session& session_ = Session::get();
  const std::chrono::milliseconds deadline_;
  const std::size_t segment_bytes_;
  Channel& channel_;

  // Of the current call; kept so that nothing is allocated in each call.
  std::vector<SendMessage> sends_;
  std::vector<ReceiveMessage> receives_;
  Backoff backoff_;
  ControlMessage status_;
  ControlMessage received_;

  Watch watch_{rank(), size(), deadline_, kLatePolls};
  struct Done {
    Clock::time_point at;
    int polls = 0;  // since then
  };
  std::vector<std::optional<Done>> done_;  // of each rank that said that it makes no more calls
};

}  // namespace

bool has_mpi() noexcept { return true; }

std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline) {
  return make_mpi_transport_with_segments(deadline, kMpiSegmentBytes);
}

std::unique_ptr<Transport> make_mpi_transport_with_segments(std::chrono::milliseconds deadline,
                                                            std::size_t segment_bytes) {
  return std::make_unique<MpiTransport>(deadline, segment_bytes);
}

}  // namespace sparsewire
