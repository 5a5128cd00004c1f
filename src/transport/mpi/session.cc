#include "transport/mpi/session.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "core/text.h"
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
  Patience patience;
  while (!is_done(request)) {
    if (end && Clock::now() >= *end) return false;
    patience.pause();
  }
  return true;
}

bool is_over() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

void say_goodbye(Kept& kept) noexcept {
  if (kept.failed || is_over()) return;
  try {
    tell_all(kept, {Note::ended, kept.rank});
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(100);
    for (Posted& posted : kept.posted) wait_until(end, posted.request);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they will find out
  }
}

}  // namespace

void Patience::pause() {
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
  if (code != MPI_SUCCESS) throw TransportError(text("[mpi] ", reason_of(code)), rank);
}

bool is_done(MPI_Request& request, int rank) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), rank);
  return done != 0;
}

std::optional<std::pair<int, Note>> next_note(const Kept& kept) {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, 0, kept.notes, &there, &message, &status));
  if (there == 0) return std::nullopt;
  std::array<std::int32_t, 2> note{};
  check(MPI_Mrecv(note.data(), 2, MPI_INT32_T, &message, MPI_STATUS_IGNORE), status.MPI_SOURCE);
  return std::pair(status.MPI_SOURCE, Note{note[0], note[1]});
}

void tell_all(Kept& kept, Note note) {
  kept.posted.remove_if([](Posted& posted) { return is_done(posted.request); });
  for (int r = 0; r < kept.size; ++r) {
    if (r == kept.rank) continue;
    Posted& posted = kept.posted.emplace_back(Posted{note});
    check(MPI_Isend(&posted.note, 2, MPI_INT32_T, r, 0, kept.notes, &posted.request), r);
  }
}

Session& Session::get() {
  static Session* const session = std::make_unique<Session>().release();
  return *session;
}

void Session::begin(std::chrono::milliseconds deadline) {
  int initialised = 0;
  int threads = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (is_over()) throw UsageError("[mpi] MPI was finalised already");
  if (initialised != 0) {
    MPI_Query_thread(&threads);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads));
    std::atexit([] { get().leave(); });
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    throw UsageError("[mpi] MPI was initialised with less than MPI_THREAD_SERIALIZED");
  }
  deadline_ = deadline;
  if (all_ == MPI_COMM_NULL) all_ = duplicate(MPI_COMM_WORLD);
}

std::unique_ptr<Kept> Session::connect() {
  auto kept = std::make_unique<Kept>();
  kept->messages = duplicate(all_);
  kept->notes = duplicate(all_);
  check(MPI_Comm_rank(kept->messages, &kept->rank));
  check(MPI_Comm_size(kept->messages, &kept->size));
  in_use_.push_back(kept.get());
  return kept;
}

void Session::keep(std::unique_ptr<Kept> kept) {
  say_goodbye(*kept);
  std::erase(in_use_, kept.get());
  kept_.push_back(std::move(kept));
}

MPI_Comm Session::duplicate(MPI_Comm comm) {
  // MPI writes to it when the request ends, which may be never.
  MPI_Comm& made = made_.emplace_back(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(comm, &made, &request));
  if (!wait_until(Clock::now() + deadline_, request)) {
    a_peer_was_lost();
    throw TransportError(text("not all ranks made a transport within ", deadline_.count(), " ms"), -1);
  }
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
  return made;
}

// At the end of the program, also by exit(), which leaves transports undestroyed. MPI_Finalize waits for all ranks, for
// ever, which is right as long as all is well: they may have other work to do. After a failure it is called only if all
// are here soon. Otherwise the process just ends, which makes mpirun end the others.
void Session::leave() noexcept {
  if (is_over() || all_ == MPI_COMM_NULL) return;
  constexpr auto kPatienceAfterAFailure = std::chrono::seconds(5);
  try {
    for (Kept* const kept : in_use_) say_goodbye(*kept);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(all_, &request));
    std::optional<Clock::time_point> end;
    if (has_lost_a_peer_) end = Clock::now() + std::min<Clock::duration>(deadline_, kPatienceAfterAFailure);
    if (!wait_until(end, request)) return;
    const auto read_all = [](const Kept& kept) {
      while (next_note(kept)) {
      }
    };
    for (const auto& kept : kept_) read_all(*kept);
    for (const Kept* const kept : in_use_) read_all(*kept);
    MPI_Finalize();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
  }
}

}  // namespace sparsewire::mpi
