#include "transport/mpi/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "sparsewire/errors.h"

namespace sparsewire::mpi {
namespace {

// Ranks agree on a free channel with one bit for each. More transports than this at a time work, but the channels of
// the later ones are not used again.
constexpr std::size_t kReusableChannels = std::numeric_limits<std::uint64_t>::digits;

bool is_finalised() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

}  // namespace

Session& Session::get() {
  static Session* const session = std::make_unique<Session>().release();
  return *session;
}

void Session::initialise(std::chrono::milliseconds deadline) {
  int initialised = 0;
  int threads = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (is_finalised()) throw UsageError("[mpi] MPI is already finalised, no transport can be made");
  if (initialised != 0) {
    MPI_Query_thread(&threads);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads));
    std::atexit([] { get().finalise(); });
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    throw UsageError(
        "[mpi] MPI was initialised with less than MPI_THREAD_SERIALIZED: call MPI_Init_thread with at least that");
  }
  deadline_ = deadline;
}

Channel& Session::acquire() {
  const Use use(*this);
  if (acquire_failed_) {
    throw TransportError("[mpi] an earlier make_mpi_transport failed: this process cannot make another transport", -1);
  }
  try {
    const Clock::time_point end = Clock::now() + deadline_;
    if (all_ == MPI_COMM_NULL) all_ = duplicate(MPI_COMM_WORLD, end);
    Channel& channel = find_or_create(end);
    channel.open();
    return channel;
  } catch (...) {
    acquire_failed_ = true;
    set_peer_lost();
    throw;
  }
}

void Session::release(Channel& channel) noexcept {
  if (is_finalised()) return;
  const Use use(*this);
  try {
    send_failures();
  } catch (const std::exception&) {  // the other ranks will notice
    channel.set_failed();
  }
  channel.close();
}

void Session::fail(Channel& channel, std::string text) {
  {
    const std::lock_guard lock(failures_mutex_);
    failures_.push_back({&channel, std::move(text)});
    has_failures_ = true;
  }
  send_failures_if_free();
}

void Session::send_failures() {
  if (!has_failures_) return;
  std::vector<Failure> failures;
  {
    const std::lock_guard lock(failures_mutex_);
    failures.swap(failures_);
    has_failures_ = false;
  }
  if (is_finalised()) return;
  set_peer_lost();
  for (const Failure& failure : failures) {
    failure.channel->send_to_all(
        {.kind = ControlMessage::failed, .rank = failure.channel->rank(), .text = failure.text});
    failure.channel->set_failed();
    failure.channel->finish_sending();
  }
}

// After each Use as well, so no failure stays unsent: whoever adds one either gets the lock or is seen by its owner.
void Session::send_failures_if_free() noexcept {
  while (has_failures_ && in_use_.try_lock()) {
    const std::lock_guard lock(in_use_, std::adopt_lock);
    try {
      send_failures();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks will notice
    }
  }
}

Channel& Session::find_or_create(Clock::time_point end) {
  free_here_ = 0;
  for (std::size_t i = 0; i < std::min(channels_.size(), kReusableChannels); ++i) {
    if (channels_[i]->is_free()) free_here_ |= std::uint64_t{1} << i;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&free_here_, &free_everywhere_, 1, MPI_UINT64_T, MPI_BAND, all_, &request));
  wait_for_all_ranks(request, end);

  if (free_everywhere_ != 0) return *channels_[static_cast<std::size_t>(std::countr_zero(free_everywhere_))];
  const MPI_Comm messages = duplicate(all_, end);
  const MPI_Comm control = duplicate(all_, end);
  return *channels_.emplace_back(std::make_unique<Channel>(messages, control));
}

MPI_Comm Session::duplicate(MPI_Comm comm, Clock::time_point end) {
  MPI_Comm& made = communicators_.emplace_back(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(comm, &made, &request));
  wait_for_all_ranks(request, end);
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
  return made;
}

void Session::wait_for_all_ranks(MPI_Request& request, Clock::time_point end) {
  if (wait_until(end, request)) return;
  throw TransportError(fmt::format("[mpi] not all ranks called make_mpi_transport within {} ms", deadline_.count()),
                       -1);
}

// At the end of the program, also after exit(), which does not destroy transports. MPI_Finalize waits for all ranks
// without a limit, which is right if nothing failed: they may have other work to do. After a failure it is called only
// if all ranks come soon. Otherwise the process just ends, and mpirun then ends the others.
void Session::finalise() noexcept {
  if (is_finalised() || all_ == MPI_COMM_NULL || acquire_failed_) return;
  const std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock) return;  // exit() while another thread is in a call
  constexpr auto kWaitAfterFailure = std::chrono::seconds(5);
  try {
    send_failures();
    for (const auto& channel : channels_) {
      if (channel->is_open()) channel->notify_done();
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(all_, &request));
    std::optional<Clock::time_point> end;
    if (peer_lost_) end = Clock::now() + std::min<Clock::duration>(deadline_, kWaitAfterFailure);
    if (!wait_until(end, request)) return;
    ControlMessage unread;
    for (const auto& channel : channels_) {
      while (channel->next_control_message(unread)) {
      }
    }
    MPI_Finalize();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody is left to be told
  }
}

}  // namespace sparsewire::mpi
