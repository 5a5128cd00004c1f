// Ranks as processes, on MPI 3: only standard calls, all of them polled, so that every call ends within the deadline.
//
// A message is copied into memory of our own before it is sent. A request that
// will never end cannot be taken back from MPI (that is, MPI_Cancel may do nothing), so what it points to has to stay
// for ever, and the caller's memory does not.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/text.h"
#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/deadline.h"
#include "transport/mpi/pieces.h"
#include "transport/mpi/session.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

using mpi::check;
using mpi::Clock;
using mpi::is_done;
using mpi::Kept;
using mpi::Note;
using mpi::Patience;
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
    session_.begin(deadline);
    kept_ = session_.connect();
    rank_ = kept_->rank;
    size_ = kept_->size;
    has_ended_.resize(static_cast<std::size_t>(size_));
    waits_for_.assign(static_cast<std::size_t>(size_), -1);
  }

  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  ~Mpi() override { session_.keep(std::move(kept_)); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  void move(std::span<const Outgoing> out, std::span<const Incoming> in) override {
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
    read_notes();
    if (failure_) throw TransportError(*failure_);
    end_ = Clock::now() + deadline_;
    half_ = end_ - deadline_ / 2;
  }

  // Starts to send. What a rank sends to itself is there at once.
  void post(std::span<const Outgoing> out, std::span<const Incoming> in) {
    sending_.clear();
    receiving_.clear();
    patience_.progress();
    std::span<const std::byte> own;
    std::span<const std::byte> last;
    std::size_t copies = 0;
    kept_->lengths.resize(std::max(kept_->lengths.size(), out.size()));
    for (const Outgoing& message : out) {
      if (message.rank == rank_) {
        own = message.bytes;
        continue;
      }
      // Ranks often send the same to all.
      if (copies == 0 || last.data() != message.bytes.data() || last.size() != message.bytes.size()) {
        if (copies == kept_->sent.size()) kept_->sent.emplace_back();
        kept_->sent[copies++].assign(message.bytes.begin(), message.bytes.end());
        last = message.bytes;
      }
      sending_.push_back({message.rank, kept_->sent[copies - 1]});
    }
    for (const Incoming& message : in) {
      if (message.rank == rank_) {
        message.bytes->assign(own.begin(), own.end());
      } else {
        receiving_.push_back({message.rank, message.bytes});
      }
    }
    for (std::size_t i = 0; i < sending_.size(); ++i) start(sending_[i], kept_->lengths[i]);
  }

  void start(Sending& message, std::uint64_t& length) {
    if (message.rest.size() <= piece_) {
      send(message, message.rest.size(), kWhole);
      return;
    }
    length = message.rest.size();
    check(MPI_Isend(&length, 1, MPI_UINT64_T, message.rank, kLength, kept_->messages, message.window.next()),
          message.rank);
  }

  void send(Sending& message, std::size_t count, int tag) {
    check(MPI_Isend(message.rest.data(), static_cast<int>(count), MPI_BYTE, message.rank, tag, kept_->messages,
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
                      kept_->messages, message.window.next()),
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
    check(MPI_Improbe(message.rank, MPI_ANY_TAG, kept_->messages, &there, &handle, &status), message.rank);
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
        patience_.progress();
      } else {
        look_up();
        patience_.pause();
      }
    }
    if (announced_ != -1) tell_all({Note::going_on, announced_});
    announced_ = -1;
  }

  template <class Body>
  void guard(Body body) {
    try {
      body();
    } catch (const TransportError& error) {
      give_up(error);
      throw;
    } catch (...) {  // no memory
      give_up(TransportError(text("rank ", rank_, " failed in an earlier call"), rank_));
      tell_all({Note::broken, rank_});
      throw;
    }
  }

  // What there is to do for one who waits, besides waiting.
  void look_up() {
    read_notes();
    if (failure_) throw TransportError(*failure_);
    const Clock::time_point now = Clock::now();
    for_each_missing([&](int rank) {
      const auto& ended = has_ended_[static_cast<std::size_t>(rank)];
      if (ended && now >= *ended) lose(rank, Note::gone);
    });
    int missing = -1;
    for_each_missing([&](int rank) { missing = missing == -1 ? rank : missing; });
    if (now >= end_) lose(who_is_to_blame(missing), Note::late);
    if (now >= half_ && missing != announced_) {
      announced_ = missing;
      tell_all({Note::waiting, missing});
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
  int who_is_to_blame(int missing) const {
    int blamed = missing;
    for (int hops = 0; hops < size_; ++hops) {
      const int next = waits_for_[static_cast<std::size_t>(blamed)];
      if (next == -1) return blamed;
      blamed = next;
    }
    return missing;  // a circle: somebody made another call than the others
  }

  [[noreturn]] void lose(int rank, Note::Kind kind) {
    tell_all({kind, rank});
    fail(rank_, {kind, rank});
    throw TransportError(*failure_);
  }

  // `by` gave up.
  void fail(int by, Note note) {
    if (failure_) return;
    kept_->failed = true;
    session_.a_peer_was_lost();
    std::string what;
    if (note.kind == Note::gone) {
      what = text("rank ", note.rank, " has ended; rank ", by, " waited for it");
    } else if (note.kind == Note::differs) {
      what = text("rank ", note.rank, " sums up another number of entries than rank ", by);
    } else if (note.kind == Note::broken) {
      what = text("rank ", note.rank, " failed");
    } else {
      what = text("rank ", note.rank, " did not come within ", deadline_.count(), " ms; rank ", by, " waited for it");
    }
    failure_.emplace(what, note.rank);
  }

  void read_notes() {
    while (const auto note = next_note(*kept_)) {
      const auto [from, what] = *note;
      switch (what.kind) {
        case Note::waiting:
          waits_for_[static_cast<std::size_t>(from)] = what.rank;
          break;
        case Note::going_on:
          waits_for_[static_cast<std::size_t>(from)] = -1;
          break;
        // What it sent before may come after: MPI keeps the order only within a communicator.
        case Note::ended:
          has_ended_[static_cast<std::size_t>(from)] = Clock::now() + std::chrono::milliseconds(100);
          break;
        default:
          fail(from, what);
      }
    }
  }

  void tell_all(Note note) { mpi::tell_all(*kept_, note); }

  // After a failure MPI may write to memory that it was given: it must no longer be the caller's.
  void give_up(const TransportError& error) {
    if (!failure_) failure_.emplace(error);
    kept_->failed = true;
    session_.a_peer_was_lost();
    for (Receiving& message : receiving_) {
      if (!message.window.is_empty()) kept_->taken.push_back(std::move(*message.bytes));
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
    if (slices_[rank].size() != size) lose(static_cast<int>(rank), Note::differs);
  }

  Session& session_ = Session::get();
  const std::chrono::milliseconds deadline_;
  const std::size_t piece_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<Kept> kept_;

  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::vector<std::byte>> slices_;  // of all ranks, while they reduce
  std::vector<Sending> sending_;
  std::vector<Receiving> receiving_;
  Patience patience_;
  Clock::time_point half_;
  Clock::time_point end_;
  int announced_ = -1;  // for whom I said that I wait

  std::vector<int> waits_for_;                               // of each rank that said so; otherwise -1
  std::vector<std::optional<Clock::time_point>> has_ended_;  // from then on nothing comes from it any more
  std::optional<TransportError> failure_;                    // the first; every later call fails with it
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
