// Bytes between ranks. Knows no gradients; the exchange is the same on every engine.
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

// All calls are collective: every rank makes the same ones in the same order. Messages may have any length, also none.
//
// Each call ends within the deadline. If a rank is gone or too late, all others throw a TransportError that names it,
// and the transport is of no more use.
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
  // Sends these messages and waits for those: what the following are made of. A rank sends to itself like to any other.
  // REQUIRES: at most one message for each rank; every message is expected by its receiver.
  virtual void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // The sum over all ranks, by the engine's own algorithm: the same bits everywhere, in an order of its choice. As many
  // numbers on every rank; otherwise it fails on all, like a lost rank.
  virtual void all_reduce_sum(std::span<float> numbers) = 0;
  // Of bf16 numbers, given as their bit patterns.
  virtual void all_reduce_sum_bf16(std::span<std::uint16_t> numbers) = 0;

  // all[r] becomes what rank r gave.
  void all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  // to[r] goes to rank r; from[r] is what came from it.
  void all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from);
  // all[r] becomes what rank r gave, on `root`; nothing on the others.
  void gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all);
  // `bytes` becomes those of `root`.
  void broadcast(int root, std::vector<std::byte>& bytes);
  // Returns when all have called it.
  void barrier();

 private:
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::vector<std::byte>> empty_;
};

// N workers in this process, each a thread of the caller's.
class ThreadGroup {
 public:
  // Throws UsageError unless 1 <= size <= 1024 and the deadline is in [1 ms, 10,000 h].
  explicit ThreadGroup(int size, std::chrono::milliseconds deadline = kDefaultDeadline);
  ~ThreadGroup();

  // The transport of one rank; the group must outlive it. These three throw UsageError if there is no such rank.
  Transport& at(int rank);
  // Something happened to rank `rank`: all others are told at their next call, or in the one they wait in.
  void mark_lost(int rank, const char* reason);
  // Rank `rank` is done: only who waits for it is told.
  void mark_done(int rank);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Runs body(transport) for every rank, each on a thread of its own, and waits for all. If a body throws, the others get
// a TransportError at their next call, and this function throws what the first one threw.
void run_on_threads(int size, const std::function<void(Transport&)>& body,
                    std::chrono::milliseconds deadline = kDefaultDeadline);

// Whether this build has MPI.
bool has_mpi() noexcept;

// All processes that mpirun started, over a communicator of its own. Initialises MPI if nobody has, and then finalises
// it at the end of the program, which waits for all ranks. Throws UsageError without MPI, or if it was initialised with
// too little thread support, or if the deadline is not in [1 ms, 10,000 h].
//
// THREADS: MPI has one caller at a time: two transports of a process must not be used from two threads at once.
std::unique_ptr<Transport> make_mpi_transport(std::chrono::milliseconds deadline = kDefaultDeadline);

}  // namespace sparsewire
