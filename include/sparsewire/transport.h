// Moves bytes between ranks. It knows nothing about gradients; the exchange is the same on every engine.
//
//   run_on_threads(8, [&](Transport& transport) { ... });      // eight workers in this process
//   auto transport = make_mpi_transport();                     // under mpirun
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace sparsewire {

inline constexpr std::chrono::milliseconds kDefaultDeadline = std::chrono::seconds(300);

// All calls are collective: every rank makes the same calls in the same order. Messages may have any length, also 0.
//
// Each call ends within the deadline. If a rank has ended or is too late, all others throw a TransportError that names
// it, and the transport must not be used again. To recover, create a new transport and load a checkpoint.
//
// Arguments are checked before anything is sent: a UsageError names the wrong value and the allowed range, and leaves
// the transport as it was. If only one rank made a wrong call, the others wait for it until the deadline.
//
// THREADS: one caller at a time, from any thread.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  struct Outgoing {
    int rank;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int rank;
    std::vector<std::byte>* bytes;
  };
  // Sends and receives these messages, in any order: all the collectives below are made of it. A rank may send to
  // itself. REQUIRES: every message is expected by its receiver.
  //
  // Throws UsageError if a rank is not in [0, size()), if there are two messages to or from the same rank, if the
  // `bytes` of an Incoming is null, or if this rank sends to itself without receiving it, or the reverse.
  virtual void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // The sum over all ranks, by the engine's own algorithm: the same bits on every rank, summed in an order that the
  // engine chooses. If the ranks do not all pass the same number of entries, all of them throw a TransportError.
  virtual void all_reduce_sum(std::span<float> numbers) = 0;
  // The same for bf16 numbers, given as their bit patterns.
  virtual void all_reduce_sum_bf16(std::span<std::uint16_t> numbers) = 0;

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

 private:
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::vector<std::byte>> empty_;
};

// N workers in this process, each on a thread that the caller provides.
class ThreadGroup {
 public:
  // Throws UsageError unless 1 <= size <= 1024 and the deadline is in [1 ms, 10,000 h].
  explicit ThreadGroup(int size, std::chrono::milliseconds deadline = kDefaultDeadline);
  ~ThreadGroup();

  // The transport of one rank; the group must outlive it. These three throw UsageError if the rank is not in [0, size).
  Transport& at(int rank);
  // Rank `rank` failed: all other ranks throw a TransportError in the call they wait in, or in their next one.
  void mark_lost(int rank, const char* reason);
  // Rank `rank` makes no more calls: only a rank that waits for it throws a TransportError.
  void mark_done(int rank);

 private:
  struct Shared;
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
// process can make no other transport.
//
// COST: memory and communicators of a destroyed transport are used again, except after a failure: then MPI may still
// write to its buffers, and they are kept until the process ends.
//
// THREADS: one caller of MPI at a time: two transports of a process must not be used by two threads at once.
std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline = kDefaultDeadline);

}  // namespace sparsewire
