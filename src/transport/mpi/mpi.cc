// Ranks as processes, on MPI 3: only standard calls, all of them polled, so that every call ends within the deadline.
//
// A message is copied into memory of our own before it is sent. A request that
// will never end cannot be taken back from MPI (that is, MPI_Cancel may do nothing), so what it points to has to stay
// for ever, and the caller's memory does not.
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/deadline.h"
#include "transport/mpi/pieces.h"
#include "transport/mpi/session.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

using mpi::Backoff;
using mpi::check;
using mpi::Clock;
using mpi::ControlMessage;
using mpi::is_done;
using mpi::PendingBuffers;
using mpi::Session;

// What kind of message it is. A long one is its length, and then the pieces.
constexpr int kWhole = 1;
constexpr int kLength = 2;
constexpr int kPiece = 3;

// How many pieces are reduced at a time: enough that the two rounds of messages cost nothing, few enough that the
// copies of them cost no memory.
constexpr std::size_t kPiecesToReduce = 256;

// Requests for the pieces of one message, in their order. Several at a time: each has to be agreed upon with the other
// side before it flows, and that shall not leave the network idle.
class Window {
 public:
  bool is_empty() const { return begun_ == ended_; }
  bool is_full() const { return begun_ - ended_ == requests_.size(); }
  // For the next piece. REQUIRES: not full.
  MPI_Request* next() { return &requests_[begun_++ % requests_.size()]; }
  // Whether some are done that were not before.
  bool advance(int rank) {
    const std::size_t before = ended_;
    while (!is_empty() && is_done(requests_[ended_ % requests_.size()], rank)) ++ended_;
    return ended_ != before;
  }

 private:
  std::array<MPI_Request, 8> requests_;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
};

class Mpi final : public Transport {
 public:
  Mpi(std::chrono::milliseconds deadline, std::size_t piece) : deadline_(deadline), piece_(piece) {
    check_deadline(deadline);
    session_.initialise(deadline);
    pending_ = session_.open();
    rank_ = pending_->rank;
    size_ = pending_->size;
    done_since_.resize(static_cast<std::size_t>(size_));
    waits_for_.assign(static_cast<std::size_t>(size_), -1);
  }

  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  ~Mpi() override { session_.release(std::move(pending_)); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    begin();
    guard([&] { pass(out, in); });
  }

  void all_reduce_sum(std::span<float> numbers) override { reduce(numbers); }

  void all_reduce_sum_bf16(std::span<std::uint16_t> numbers) override { reduce(numbers); }

 private:
  struct Sending {
    int rank;
    std::span<const std::byte> rest;  // not yet given to MPI
    Window window;
    bool done = false;
  };
  struct Receiving {
    int rank;
    std::vector<std::byte>* bytes;
    bool has_begun = false;  // `bytes` has its size
    std::size_t given = 0;   // to MPI, to be filled
    Window window;
    bool done = false;
  };

  void begin() {
    read_control_messages();
    if (failure_) throw TransportError(*failure_);
    end_ = Clock::now() + deadline_;
    half_ = end_ - deadline_ / 2;
  }

  // Starts to send. What a rank sends to itself is there at once.
  void post(std::span<const Outgoing> out, std::span<const Incoming> in) {
    sending_.clear();
    receiving_.clear();
    backoff_.progress();
    std::span<const std::byte> own;
    std::span<const std::byte> last;
    std::size_t copies = 0;
    pending_->lengths.resize(std::max(pending_->lengths.size(), out.size()));
    for (const Outgoing& message : out) {
      if (message.rank == rank_) {
        own = message.bytes;
        continue;
      }
      // Ranks often send the same to all.
      if (copies == 0 || last.data() != message.bytes.data() || last.size() != message.bytes.size()) {
        if (copies == pending_->sent.size()) pending_->sent.emplace_back();
        pending_->sent[copies++].assign(message.bytes.begin(), message.bytes.end());
        last = message.bytes;
      }
      sending_.push_back({message.rank, pending_->sent[copies - 1]});
    }
    for (const Incoming& message : in) {
      if (message.rank == rank_) {
        message.bytes->assign(own.begin(), own.end());
      } else {
        receiving_.push_back({message.rank, message.bytes});
      }
    }
    for (std::size_t i = 0; i < sending_.size(); ++i) start(sending_[i], pending_->lengths[i]);
  }

  void start(Sending& message, std::uint64_t& length) {
    if (message.rest.size() <= piece_) {
      send(message, message.rest.size(), kWhole);
      return;
    }
    length = message.rest.size();
    check(MPI_Isend(&length, 1, MPI_UINT64_T, message.rank, kLength, pending_->messages, message.window.next()),
          message.rank);
  }

  void send(Sending& message, std::size_t count, int tag) {
    check(MPI_Isend(message.rest.data(), static_cast<int>(count), MPI_BYTE, message.rank, tag, pending_->messages,
                    message.window.next()),
          message.rank);
    message.rest = message.rest.subspan(count);
  }

  // These two return whether something happened.
  bool advance(Sending& message) {
    if (message.done) return false;
    const bool progress = message.window.advance(message.rank);
    while (!message.rest.empty() && !message.window.is_full()) {
      send(message, std::min(piece_, message.rest.size()), kPiece);
    }
    message.done = message.window.is_empty();
    return progress;
  }

  bool advance(Receiving& message) {
    if (message.done) return false;
    bool progress = message.has_begun ? message.window.advance(message.rank) : look_for(message);
    if (!message.has_begun) return false;
    while (message.given < message.bytes->size() && !message.window.is_full()) {
      const std::size_t count = std::min(piece_, message.bytes->size() - message.given);
      check(MPI_Irecv(message.bytes->data() + message.given, static_cast<int>(count), MPI_BYTE, message.rank, kPiece,
                      pending_->messages, message.window.next()),
            message.rank);
      message.given += count;
    }
    message.done = message.window.is_empty();
    return progress || message.done;
  }

  bool look_for(Receiving& message) {
    int there = 0;
    int count = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(message.rank, MPI_ANY_TAG, pending_->messages, &there, &handle, &status), message.rank);
    if (there == 0) return false;
    if (status.MPI_TAG == kLength) {
      std::uint64_t length = 0;
      check(MPI_Mrecv(&length, 1, MPI_UINT64_T, &handle, MPI_STATUS_IGNORE), message.rank);
      message.bytes->resize(length);
      message.has_begun = true;
      return true;
    }
    check(MPI_Get_count(&status, MPI_BYTE, &count), message.rank);
    message.given = static_cast<std::size_t>(count);
    message.bytes->resize(message.given);
    check(MPI_Imrecv(message.bytes->data(), count, MPI_BYTE, &handle, message.window.next()), message.rank);
    message.has_begun = true;
    return true;
  }

  void pass(std::span<const Outgoing> out, std::span<const Incoming> in) {
    post(out, in);
    while (true) {
      bool progress = false;
      bool done = true;
      for (Sending& message : sending_) {
        progress |= advance(message);
        done &= message.done;
      }
      for (Receiving& message : receiving_) {
        progress |= advance(message);
        done &= message.done;
      }
      if (done) break;
      if (progress) {
        backoff_.progress();
      } else {
        check_peers();
        backoff_.pause();
      }
    }
    if (announced_wait_ != -1) send_to_all({ControlMessage::resumed, announced_wait_});
    announced_wait_ = -1;
  }

  template <class Body>
  void guard(Body body) {
    try {
      body();
    } catch (const TransportError& error) {
      give_up(error);
      throw;
    } catch (...) {  // no memory
      give_up(TransportError(fmt::format("rank {} failed in an earlier call", rank_), rank_));
      send_to_all({ControlMessage::broken, rank_});
      throw;
    }
  }

  // What there is to do for one who waits, besides waiting.
  void check_peers() {
    read_control_messages();
    if (failure_) throw TransportError(*failure_);
    const Clock::time_point now = Clock::now();
    for_each_missing([&](int rank) {
      const auto& ended = done_since_[static_cast<std::size_t>(rank)];
      if (ended && now >= *ended) report_lost(rank, ControlMessage::gone);
    });
    int missing = -1;
    for_each_missing([&](int rank) { missing = missing == -1 ? rank : missing; });
    if (now >= end_) report_lost(find_late_rank(missing), ControlMessage::late);
    if (now >= half_ && missing != announced_wait_) {
      announced_wait_ = missing;
      send_to_all({ControlMessage::waiting, missing});
    }
  }

  template <class Visit>
  void for_each_missing(Visit visit) const {
    for (const Receiving& message : receiving_) {
      if (!message.done) visit(message.rank);
    }
    for (const Sending& message : sending_) {
      if (!message.done) visit(message.rank);
    }
  }

  // The one at the end of the chain: who waits for another is not late.
  int find_late_rank(int missing) const {
    int blamed = missing;
    for (int hops = 0; hops < size_; ++hops) {
      const int next = waits_for_[static_cast<std::size_t>(blamed)];
      if (next == -1) return blamed;
      blamed = next;
    }
    return missing;  // a circle: somebody made another call than the others
  }

  [[noreturn]] void report_lost(int rank, ControlMessage::Kind kind) {
    send_to_all({kind, rank});
    fail(rank_, {kind, rank});
    throw TransportError(*failure_);
  }

  // `by` gave up.
  void fail(int by, ControlMessage message) {
    if (failure_) return;
    pending_->failed = true;
    session_.mark_peer_lost();
    std::string what;
    if (message.kind == ControlMessage::gone) {
      what = fmt::format("rank {} has ended; rank {} waited for it", message.rank, by);
    } else if (message.kind == ControlMessage::differs) {
      what = fmt::format("rank {} sums up another number of entries than rank {}", message.rank, by);
    } else if (message.kind == ControlMessage::broken) {
      what = fmt::format("rank {} failed", message.rank);
    } else {
      what =
          fmt::format("rank {} did not come within {} ms; rank {} waited for it", message.rank, deadline_.count(), by);
    }
    failure_.emplace(what, message.rank);
  }

  void read_control_messages() {
    while (const auto message = next_control_message(*pending_)) {
      const auto [from, what] = *message;
      switch (what.kind) {
        case ControlMessage::waiting:
          waits_for_[static_cast<std::size_t>(from)] = what.rank;
          break;
        case ControlMessage::resumed:
          waits_for_[static_cast<std::size_t>(from)] = -1;
          break;
        // What it sent before may come after: MPI keeps the order only within a communicator.
        case ControlMessage::done:
          done_since_[static_cast<std::size_t>(from)] = Clock::now() + std::chrono::milliseconds(100);
          break;
        default:
          fail(from, what);
      }
    }
  }

  void send_to_all(ControlMessage message) { mpi::send_to_all(*pending_, message); }

  // After a failure MPI may write to memory that it was given: it must no longer be the caller's.
  void give_up(const TransportError& error) {
    if (!failure_) failure_.emplace(error);
    pending_->failed = true;
    session_.mark_peer_lost();
    for (Receiving& message : receiving_) {
      if (!message.window.is_empty()) pending_->unfinished.push_back(std::move(*message.bytes));
      message.bytes->clear();
    }
  }

  // Every rank gets a slice from all others, sums it in rank order, as on threads, and sends it back to all. That is as
  // few bytes as any algorithm needs, and the messages tell who is missing; MPI_Iallreduce would not.
  template <class Number>
  void reduce(std::span<Number> numbers) {
    begin();
    guard([&] {
      do {
        const std::size_t count = std::min(kPiecesToReduce * piece_ / sizeof(Number), numbers.size());
        reduce_stretch(numbers.first(count));
        numbers = numbers.subspan(count);
      } while (!numbers.empty());
    });
  }

  template <class Number>
  void reduce_stretch(std::span<Number> numbers) {
    const auto ranks = static_cast<std::size_t>(size_);
    const auto slice = [&](std::size_t rank) {
      const std::size_t begin = numbers.size() * rank / ranks;
      return numbers.subspan(begin, numbers.size() * (rank + 1) / ranks - begin);
    };
    const std::span<Number> own = slice(static_cast<std::size_t>(rank_));
    slices_.resize(ranks);
    out_.clear();
    in_.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      out_.push_back({static_cast<int>(r), std::as_bytes(slice(r))});
      in_.push_back({static_cast<int>(r), &slices_[r]});
    }
    pass(out_, in_);
    for (std::size_t r = 0; r < ranks; ++r) check_size(r, own.size_bytes());
    // The own part is among them.
    const auto part = [&](std::size_t rank) { return reinterpret_cast<const Number*>(slices_[rank].data()); };
    sum_in_rank_order(
        size_, [&](int r) { return part(static_cast<std::size_t>(r)); }, own.size(), own.data());

    for (Outgoing& message : out_) message.bytes = std::as_bytes(own);
    pass(out_, in_);
    for (std::size_t r = 0; r < ranks; ++r) {
      check_size(r, slice(r).size_bytes());
      std::copy_n(part(r), slice(r).size(), slice(r).data());
    }
  }

  void check_size(std::size_t rank, std::size_t size) {
    if (slices_[rank].size() != size) report_lost(static_cast<int>(rank), ControlMessage::differs);
  }

  Session& session_ = Session::get();
  const std::chrono::milliseconds deadline_;
  const std::size_t piece_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<PendingBuffers> pending_;

  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::vector<std::byte>> slices_;  // of all ranks, while they reduce
  std::vector<Sending> sending_;
  std::vector<Receiving> receiving_;
  Backoff backoff_;
  Clock::time_point half_;
  Clock::time_point end_;
  int announced_wait_ = -1;  // the rank that I told all others I wait for; -1: none

  std::vector<int> waits_for_;                                // of each rank that said so; otherwise -1
  std::vector<std::optional<Clock::time_point>> done_since_;  // from then on nothing comes from it any more
  std::optional<TransportError> failure_;                     // the first; every later call fails with it
};

}  // namespace

bool has_mpi() noexcept { return true; }

std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline) {
  return make_mpi_transport_in_pieces(deadline, kMpiPiece);
}

std::unique_ptr<Transport> make_mpi_transport_in_pieces(std::chrono::milliseconds deadline, std::size_t piece) {
  return std::make_unique<Mpi>(deadline, piece);
}

}  // namespace sparsewire
