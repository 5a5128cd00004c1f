#include "transport/mpi/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "sparsewire/errors.h"

namespace sparsewire::mpi {
namespace {

std::string reason_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> reason{};
  int length = 0;
  MPI_Error_string(code, reason.data(), &length);
  return {reason.data(), static_cast<std::size_t>(length)};
}

// Whether the request was done in time; without an end it always is.
bool wait_until(std::optional<Clock::time_point> end, MPI_Request& request) {
  Backoff backoff;
  while (!is_done(request)) {
    if (end && Clock::now() >= *end) return false;
    backoff.pause();
  }
  return true;
}

bool is_over() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

void notify_done(PendingBuffers& pending) noexcept {
  if (pending.failed || is_over()) return;
  try {
    send_to_all(pending, {ControlMessage::done, pending.rank});
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(100);
    for (PostedMessage& posted : pending.posted) wait_until(end, posted.request);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they will find out
  }
}

}  // namespace

void Backoff::pause() {
  constexpr int kBusyLooks = 20;
  constexpr int kYieldingLooks = 2000;
  ++looks_;
  if (looks_ <= kBusyLooks) return;
  if (looks_ <= kYieldingLooks) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void check(int code, int rank) {
  if (code != MPI_SUCCESS) throw TransportError(fmt::format("[mpi] {}", reason_of(code)), rank);
}

bool is_done(MPI_Request& request, int rank) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), rank);
  return done != 0;
}

std::optional<std::pair<int, ControlMessage>> next_control_message(const PendingBuffers& pending) {
  int there = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, 0, pending.control, &there, &handle, &status));
  if (there == 0) return std::nullopt;
  std::array<std::int32_t, 2> message{};
  check(MPI_Mrecv(message.data(), 2, MPI_INT32_T, &handle, MPI_STATUS_IGNORE), status.MPI_SOURCE);
  return std::pair(status.MPI_SOURCE, ControlMessage{message[0], message[1]});
}

void send_to_all(PendingBuffers& pending, ControlMessage message) {
  pending.posted.remove_if([](PostedMessage& posted) { return is_done(posted.request); });
  for (int r = 0; r < pending.size; ++r) {
    if (r == pending.rank) continue;
    PostedMessage& posted = pending.posted.emplace_back(PostedMessage{message});
    check(MPI_Isend(&posted.message, 2, MPI_INT32_T, r, 0, pending.control, &posted.request), r);
  }
}

Session& Session::get() {
  static Session* const session = std::make_unique<Session>().release();
  return *session;
}

void Session::initialise(std::chrono::milliseconds deadline) {
  int initialised = 0;
  int threads = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (is_over()) throw UsageError("[mpi] MPI was finalised already");
  if (initialised != 0) {
    MPI_Query_thread(&threads);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads));
    std::atexit([] { get().finalise(); });
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    throw UsageError("[mpi] MPI was initialised with less than MPI_THREAD_SERIALIZED");
  }
  deadline_ = deadline;
  if (all_ == MPI_COMM_NULL) all_ = duplicate(MPI_COMM_WORLD);
}

std::unique_ptr<PendingBuffers> Session::open() {
  auto pending = std::make_unique<PendingBuffers>();
  pending->messages = duplicate(all_);
  pending->control = duplicate(all_);
  check(MPI_Comm_rank(pending->messages, &pending->rank));
  check(MPI_Comm_size(pending->messages, &pending->size));
  in_use_.push_back(pending.get());
  return pending;
}

void Session::release(std::unique_ptr<PendingBuffers> pending) {
  notify_done(*pending);
  std::erase(in_use_, pending.get());
  released_.push_back(std::move(pending));
}

MPI_Comm Session::duplicate(MPI_Comm comm) {
  // MPI writes to it when the request ends, which may be never.
  MPI_Comm& made = made_.emplace_back(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(comm, &made, &request));
  if (!wait_until(Clock::now() + deadline_, request)) {
    mark_peer_lost();
    throw TransportError(fmt::format("not all ranks made a transport within {} ms", deadline_.count()), -1);
  }
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
  return made;
}

// At the end of the program, also by exit(), which does not destroy transports. MPI_Finalize waits for all ranks, for
// ever, which is right as long as all is well: they may have other work to do. After a failure it is called only if all
// are here soon. Otherwise the process just ends, which makes mpirun end the others.
void Session::finalise() noexcept {
  if (is_over() || all_ == MPI_COMM_NULL) return;
  constexpr auto kWaitAfterFailure = std::chrono::seconds(5);
  try {
    for (PendingBuffers* const pending : in_use_) notify_done(*pending);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(all_, &request));
    std::optional<Clock::time_point> end;
    if (peer_lost_) end = Clock::now() + std::min<Clock::duration>(deadline_, kWaitAfterFailure);
    if (!wait_until(end, request)) return;
    const auto read_all = [](const PendingBuffers& pending) {
      while (next_control_message(pending)) {
      }
    };
    for (const auto& pending : released_) read_all(*pending);
    for (const PendingBuffers* const pending : in_use_) read_all(*pending);
    MPI_Finalize();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
  }
}

}  // namespace sparsewire::mpi
