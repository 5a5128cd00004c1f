// Moves bytes between ranks. It knows nothing about gradients; the exchange is the same on every engine.
//
//   run_on_threads(8, [&](Transport& transport) { ... });      // eight workers in this process
//   auto transport = make_mpi_transport();                     // under mpirun
//   tcp_transport.h                                            // other processes
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sparsewire/gradient.h"

namespace sparsewire {

class AllReduce;
class TransportError;

inline constexpr std::chrono::milliseconds kDefaultDeadline = std::chrono::seconds(300);

// All calls but fail() are collective: every rank makes the same calls in the same order. Messages may have any length,
// also 0.
//
// The deadline of a transport means silence. A call fails when for that long neither this rank nor any rank that it
// waits for, directly or through others, made progress: entered a call, or sent or received a part of a message. A call
// that makes progress may take longer than the deadline. A rank that computes outside of calls makes no progress. All
// ranks then throw a TransportError that names the rank that was silent, not one that was waiting for it. (If ranks
// wait for each other because one of them made another call, it names one of these.) Where the engine can tell that a
// rank has ended, who waits for it fails at once.
//
// After a TransportError every later call throws it again: the transport must not be used any more. To recover, create
// a new transport and load a checkpoint.
//
// Arguments are checked before anything is sent: a UsageError names the wrong value and the allowed range, and leaves
// the transport as it was. If only one rank made a wrong call, the others wait for it until the deadline, unless it
// calls fail().
//
// To write a transport, implement rank(), size() and do_send_receive(); docs/guides/extending.md shows one, and
// sparsewire/testing/transport_conformance.h tests it.
//
// THREADS: one caller at a time, from any thread; fail() also beside another call.
class Transport {
 public:
  Transport();
  virtual ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // Whether all ranks are threads of this process, so that each can read the memory of the others, and messages arrive
  // unaltered.
  virtual bool is_one_process() const noexcept { return false; }

  static constexpr std::size_t kUnknownSize = static_cast<std::size_t>(-1);

  struct Outgoing {
    int rank;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int rank;
    std::vector<std::byte>* bytes;
    // How many bytes will come, where the caller knows: some engines then save a message. If another number comes, the
    // call throws a TransportError.
    std::size_t size = kUnknownSize;
  };
  // Sends and receives these messages, in any order. A rank may send to itself. REQUIRES: every message is expected by
  // its receiver.
  //
  // Throws UsageError if a rank is not in [0, size()), if there are two messages to or from the same rank, if the
  // `bytes` of an Incoming is null, or if this rank sends to itself without receiving it, or the reverse.
  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in);

  // The sum over all ranks, in place: the same bits on every rank, summed in an order that the engine chooses; bf16
  // numbers are summed in f32 and rounded once, at the end. If the ranks do not all pass the same type and number of
  // entries, all of them throw a TransportError. Throws UsageError unless the type is f32 or bf16.
  void all_reduce_sum(WritableNumbers numbers);

  // all[r] becomes `mine` of rank r.
  void all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  // Sends to[r] to rank r; from[r] becomes what rank r sent. Throws UsageError unless to.size() == size().
  void all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from);
  // On `root`, all[r] becomes `mine` of rank r; on the other ranks `all` becomes empty. Throws UsageError if `root` is
  // not in [0, size()).
  void gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  // `bytes` becomes those of `root`. Throws UsageError if `root` is not in [0, size()).
  void broadcast(int root, std::vector<std::byte>& bytes);
  // Returns when all ranks have called it.
  void barrier();

  // This rank cannot go on. All other ranks throw a TransportError with this rank and this cause (its first 1,000
  // bytes), in the call that they wait in or in their next one. So do this rank's own later calls. Not collective.
  //
  // The default only remembers the cause for this rank's own next call: the others wait for this rank as long as their
  // engine lets them. An engine that can tell them overrides it.
  //
  // THREADS: any thread, at any time, also while another one is in a call.
  virtual void fail(std::string_view why) noexcept;

 protected:
  // What an engine implements. The functions above call these with checked arguments, remember a TransportError that
  // comes out, and call fail() for any other exception.
  //
  // REQUIRES: returns when the messages have arrived, and those sent may be changed; a message whose `size` is known
  // may have another one, which is checked afterwards.
  virtual void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  // An engine with collectives of its own overrides these. The defaults use send_receive(), and allocate nothing once
  // their buffers have grown. COST of the default do_all_reduce_sum: 2(P-1)/P of the bytes out, as many in, and three
  // rounds of messages, or more if there are more than 16 MB.
  virtual void do_all_reduce_sum(WritableNumbers numbers);
  virtual void do_all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  virtual void do_all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from);
  virtual void do_gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  virtual void do_broadcast(int root, std::vector<std::byte>& bytes);
  virtual void do_barrier();

  // For a do_all_reduce_sum of one's own. Collective: throws the same TransportError on all ranks unless all of them
  // pass the same type and number of entries.
  void check_same_numbers(const WritableNumbers& numbers);
  // Throws the first TransportError of this transport, or what fail() was told: for an engine that looks while it
  // waits.
  void throw_if_failed();

 private:
  struct Failure;
  struct Buffers;

  template <class Call>
  void run(Call call);
  void check_sizes(std::span<const Incoming> in);
  void tell(const TransportError& error);
  AllReduce& all_reduce();

  std::unique_ptr<Failure> failure_;
  std::unique_ptr<Buffers> buffers_;
};

class RankClock;

// N workers in this process, each on a thread that the caller provides.
class ThreadGroup {
 public:
  // Throws UsageError unless 1 <= size <= 1024 and the deadline is in [1 ms, 10,000 h].
  explicit ThreadGroup(int size, std::chrono::milliseconds deadline = kDefaultDeadline);
  ~ThreadGroup();

  // The transport of one rank; the group must outlive it. These three throw UsageError if the rank is not in [0, size).
  Transport& at(int rank);
  // Rank `rank` failed: the same as at(rank).fail(reason).
  void mark_lost(int rank, const char* reason);
  // Rank `rank` makes no more calls: only a rank that waits for it throws a TransportError.
  void mark_done(int rank);

 private:
  struct Shared;
  friend void run_on_threads(int, const std::function<void(Transport&)>&, std::chrono::milliseconds);
  friend void run_on_threads(int, const std::function<void(Transport&)>&, std::chrono::milliseconds, RankClock&);

  ThreadGroup(int size, std::chrono::milliseconds deadline, RankClock* clock);
  void run(const std::function<void(Transport&)>& body);

  std::unique_ptr<Shared> shared_;
};

// Runs body(transport) for every rank, each on a thread of its own, and waits for all of them. If a body throws, the
// other ranks get a TransportError in their next call, and this function rethrows what the first one threw.
void run_on_threads(int size, const std::function<void(Transport&)>& body,
                    std::chrono::milliseconds deadline = kDefaultDeadline);

// Whether this build has MPI.
bool has_mpi() noexcept;

// The processes that mpirun started; collective. No two transports share a communicator at a time. Initialises MPI if
// that was not done before, and then finalises it at the end of the program, which waits for all ranks.
//
// Throws UsageError if this build has no MPI, if MPI was initialised with less than MPI_THREAD_SERIALIZED, or if the
// deadline is not in [1 ms, 10,000 h]. Throws TransportError if not all ranks call it within the deadline; then this
// process can make no other transport. The deadline does not hold for MPI_Init and MPI_Finalize:
// docs/reference/exchange.md.
//
// COST: memory and communicators of a destroyed transport are used again, except after a failure: then MPI may still
// write to its buffers, and they are kept until the process ends.
//
// THREADS: one caller of MPI at a time: two transports of a process must not be used by two threads at once. fail() may
// be called beside a call of a transport, which then sends the message; if there is none, it uses MPI itself.
std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline = kDefaultDeadline);

}  // namespace sparsewire
