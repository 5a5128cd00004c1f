// Ranks as processes, on MPI 3. Only standard calls, all of them polled, so that every call ends within the deadline.
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
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
#include "transport/sum.h"

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

// How many segments all_reduce_sum sums at a time: enough to make the cost of two rounds of messages negligible, few
// enough to keep the copies small.
constexpr std::size_t kSegmentsPerReduction = 256;

// `done` and a message before it go over different communicators, so the message may arrive later. It is given up only
// after so much time, or a quarter of the deadline, and so many polls: a process that got no processor for a while has
// not looked for it.
constexpr std::chrono::milliseconds kDoneGrace(2000);
constexpr int kDonePolls = 1000;

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::chrono::milliseconds deadline, std::size_t segment_bytes)
      : deadline_(deadline), segment_bytes_(segment_bytes), channel_(acquire_channel(session_, deadline)) {
    done_.resize(static_cast<std::size_t>(size()));
    waits_for_.assign(static_cast<std::size_t>(size()), -1);
  }

  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  ~MpiTransport() override { session_.release(channel_); }

  int rank() const noexcept override { return channel_.rank(); }
  int size() const noexcept override { return channel_.size(); }

  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    check_messages(rank(), size(), out, in);
    start_deadline();
    run_or_fail([&] { transfer(out, in); });
  }

  void all_reduce_sum(std::span<float> numbers) override { reduce(numbers); }

  void all_reduce_sum_bf16(std::span<std::uint16_t> numbers) override { reduce(numbers); }

 private:
  static Channel& acquire_channel(Session& session, std::chrono::milliseconds deadline) {
    check_deadline(deadline);
    session.initialise(deadline);
    return session.acquire();
  }

  void start_deadline() {
    read_control_messages();
    if (failure_) throw TransportError(*failure_);
    end_ = Clock::now() + deadline_;
    half_ = end_ - deadline_ / 2;
  }

  // If the body throws, every later call fails as well, on all ranks.
  template <class Body>
  void run_or_fail(Body body) {
    try {
      body();
    } catch (const TransportError& error) {
      fail(error);
      throw;
    } catch (...) {  // no memory
      fail(TransportError(fmt::format("rank {} failed in an earlier call", rank()), rank()));
      channel_.send_to_all({ControlMessage::broken, rank()});
      throw;
    }
  }

  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
    start_messages(out, in);
    backoff_.reset();
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
      if (complete) break;
      if (progress) {
        backoff_.reset();
      } else {
        check_peers();
        backoff_.pause();
      }
    }
    sends_.clear();
    receives_.clear();  // they refer to memory of the caller
    if (announced_wait_ != -1) channel_.send_to_all({ControlMessage::resumed, announced_wait_});
    announced_wait_ = -1;
  }

  // Copies what is sent (see PendingBuffers). What a rank sends to itself has arrived at once.
  void start_messages(std::span<const Outgoing> out, std::span<const Incoming> in) {
    sends_.clear();
    receives_.clear();
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

  // While this rank waits: throws if another rank has failed or ended, or if the deadline has passed.
  void check_peers() {
    read_control_messages();
    if (failure_) throw TransportError(*failure_);
    const Clock::time_point now = Clock::now();
    int missing = -1;
    for_each_missing_rank([&](int rank) {
      auto& done = done_[static_cast<std::size_t>(rank)];
      if (done && ++done->polls >= kDonePolls && now >= done->at + std::min(kDoneGrace, deadline_ / 4)) {
        fail_on_all_ranks({ControlMessage::ended, rank});
      }
      if (missing == -1) missing = rank;
    });
    if (now >= end_) fail_on_all_ranks({ControlMessage::late, find_late_rank(missing)});
    if (now >= half_ && missing != announced_wait_) {
      announced_wait_ = missing;
      channel_.send_to_all({ControlMessage::waiting, missing});
    }
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

  // The last rank of the chain "A waits for B waits for C": a rank that waits for another one is not late itself.
  int find_late_rank(int missing) const {
    int late = missing;
    for (int hops = 0; hops < size(); ++hops) {
      const int next = waits_for_[static_cast<std::size_t>(late)];
      if (next == -1) return late;
      late = next;
    }
    return missing;  // a cycle: one of them made another call than the others
  }

  void read_control_messages() {
    while (const auto received = channel_.next_control_message()) {
      const auto [from, message] = *received;
      switch (message.kind) {
        case ControlMessage::waiting:
          waits_for_[static_cast<std::size_t>(from)] = message.rank;
          break;
        case ControlMessage::resumed:
          waits_for_[static_cast<std::size_t>(from)] = -1;
          break;
        case ControlMessage::done:
          done_[static_cast<std::size_t>(from)] = Done{Clock::now()};
          break;
        default:
          set_failure(failure_of(from, message));
      }
    }
  }

  [[noreturn]] void fail_on_all_ranks(ControlMessage message) {
    channel_.send_to_all(message);
    set_failure(failure_of(rank(), message));
    throw TransportError(*failure_);
  }

  // `reporter`: the rank that sent the control message.
  TransportError failure_of(int reporter, ControlMessage message) const {
    const auto what = [&]() -> std::string {
      switch (message.kind) {
        case ControlMessage::ended:
          return fmt::format("rank {} has ended; rank {} was waiting for it", message.rank, reporter);
        case ControlMessage::differs:
          return fmt::format("rank {} called all_reduce_sum with another number of entries than rank {}", message.rank,
                             reporter);
        case ControlMessage::broken:
          return fmt::format("rank {} failed", message.rank);
        default:
          return fmt::format("rank {} did not respond within {} ms; rank {} was waiting for it", message.rank,
                             deadline_.count(), reporter);
      }
    };
    return {what(), message.rank};
  }

  // The first failure counts.
  void set_failure(const TransportError& error) {
    if (!failure_) failure_.emplace(error);
    channel_.set_failed();
    session_.set_peer_lost();
  }

  void fail(const TransportError& error) {
    set_failure(error);
    for (ReceiveMessage& message : receives_) message.abandon(channel_.buffers.received);
  }

  // Every rank receives a slice from all others, sums it in rank order, as on threads, and sends the sum to all. No
  // algorithm needs fewer bytes, and the messages show which rank is missing, which MPI_Iallreduce would not.
  template <class Number>
  void reduce(std::span<Number> numbers) {
    start_deadline();
    run_or_fail([&] {
      do {
        const std::size_t count = std::min(kSegmentsPerReduction * segment_bytes_ / sizeof(Number), numbers.size());
        reduce_block(numbers.first(count));
        numbers = numbers.subspan(count);
      } while (!numbers.empty());
    });
  }

  template <class Number>
  void reduce_block(std::span<Number> numbers) {
    const auto ranks = static_cast<std::size_t>(size());
    const auto slice = [&](std::size_t r) {
      const std::size_t begin = numbers.size() * r / ranks;
      return numbers.subspan(begin, numbers.size() * (r + 1) / ranks - begin);
    };
    const std::span<Number> own = slice(static_cast<std::size_t>(rank()));
    slices_.resize(ranks);
    out_.clear();
    in_.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      out_.push_back({static_cast<int>(r), std::as_bytes(slice(r))});
      in_.push_back({static_cast<int>(r), &slices_[r]});
    }
    transfer(out_, in_);
    for (std::size_t r = 0; r < ranks; ++r) check_slice_size(r, own.size_bytes());
    const auto received = [&](std::size_t r) { return reinterpret_cast<const Number*>(slices_[r].data()); };
    sum_in_rank_order(
        size(), [&](int r) { return received(static_cast<std::size_t>(r)); }, own.size(), own.data());

    for (Outgoing& message : out_) message.bytes = std::as_bytes(own);
    transfer(out_, in_);
    for (std::size_t r = 0; r < ranks; ++r) {
      check_slice_size(r, slice(r).size_bytes());
      std::copy_n(received(r), slice(r).size(), slice(r).data());
    }
  }

  void check_slice_size(std::size_t r, std::size_t size_in_bytes) {
    if (slices_[r].size() != size_in_bytes) fail_on_all_ranks({ControlMessage::differs, static_cast<int>(r)});
  }

  Session& session_ = Session::get();
  const std::chrono::milliseconds deadline_;
  const std::size_t segment_bytes_;
  Channel& channel_;

  // Of the current call; kept so that nothing is allocated in each call.
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::vector<std::byte>> slices_;  // received from all ranks in all_reduce_sum
  std::vector<SendMessage> sends_;
  std::vector<ReceiveMessage> receives_;
  Backoff backoff_;
  Clock::time_point half_;
  Clock::time_point end_;
  int announced_wait_ = -1;  // the rank that I told all others I wait for, or -1

  std::vector<int> waits_for_;  // the rank that each rank said it waits for, or -1
  struct Done {
    Clock::time_point at;
    int polls = 0;  // since then
  };
  std::vector<std::optional<Done>> done_;  // of each rank that said that it makes no more calls
  std::optional<TransportError> failure_;  // the first one; every later call throws it again
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
