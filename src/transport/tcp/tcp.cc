// Ranks as processes with TCP connections between all of them. Sockets never block, and one loop inside of a call moves
// everything: so every call ends within the deadline, and no thread is needed.
#include <fmt/core.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/tcp_transport.h"
#include "transport/arguments.h"
#include "transport/deadline.h"
#include "transport/tcp/messages.h"
#include "transport/tcp/peer.h"
#include "transport/tcp/setup.h"
#include "transport/watch.h"

namespace sparsewire {
namespace {

using tcp::Connections;
using tcp::ControlMessage;
using tcp::Moved;
using tcp::Socket;
using Clock = Watch::Clock;
using std::chrono::milliseconds;

// See Watch. Once the deadline has passed, these polls are a millisecond each.
constexpr int kLatePolls = 20;
// A rank that has ended may have said why, over its control connection. When that is closed, too, everything was read;
// this is only for one that is not.
constexpr milliseconds kEndGrace(1000);
// A call whose messages have all arrived does not fail because a rank that is further on says that one has ended. So
// what has arrived is read before that is thrown, for no more than this time.
constexpr milliseconds kReadFirst(1000);
// How long a failure may take to leave, and the last messages of a transport that is destroyed.
constexpr milliseconds kFailureTime(100);
constexpr milliseconds kLastMessagesTime(2000);
// Not the whole rest of a long deadline: the time in poll() is an int.
constexpr milliseconds kLongestPause(60'000);

// What a rank knows of another one.
struct Peer {
  Connections connections = {};
  bool is_readable = true;  // as far as is known: reset when a call would block
  bool is_writable = true;
  bool has_control_events = true;
  tcp::SendMessage send = {};
  tcp::ReceiveMessage receive = {};
  std::optional<Clock::time_point> ended_at = {};  // its connection for messages is broken

  bool is_active() const { return send.is_active() || receive.is_active(); }
  bool can_move() const { return (send.is_active() && is_writable) || (receive.is_active() && is_readable); }
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::vector<Connections> connections, int rank, milliseconds deadline)
      : rank_(rank),
        size_(static_cast<int>(connections.size())),
        deadline_(deadline),
        watch_(rank, size_, deadline, kLatePolls),
        peers_(connections.size()) {
    if (size_ == 1) return;
    poll_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
    wake_ = Socket(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    add(wake_, EPOLLIN, rank_, tcp::Channel::control);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      at(r).connections = std::move(connections[static_cast<std::size_t>(r)]);
      // Edge-triggered: a message of a later call must not wake this rank again and again.
      add(at(r).connections.messages, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, r, tcp::Channel::messages);
      add(at(r).connections.control.socket(), EPOLLIN, r, tcp::Channel::control);
    }
    events_.resize(std::min<std::size_t>(2 * peers_.size(), 256));
    active_.reserve(peers_.size());
  }

  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  ~TcpTransport() override {
    if (size_ > 1 && !is_copy()) close();
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  void fail(std::string_view why) noexcept override {
    try {
      Transport::fail(why);
      if (size_ == 1 || is_copy()) return;
      {
        const std::lock_guard lock(failure_mutex_);
        if (failure_.empty()) failure_ = failure_text(rank_, why);
        has_failure_ = true;
      }
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);  // ends the pause of a call
      send_failure_if_free();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks will notice
    }
  }

 protected:
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    if (size_ == 1) return copy_own_message(out, in);
    {
      const std::lock_guard use(in_use_);
      try {
        begin_call();
        start_messages(out, in);
        transfer();
        end_call();
      } catch (const TransportError& error) {
        abandon_messages();
        tell_all_that_it_failed(error.rank(), error.what());
        throw;
      } catch (...) {  // Transport calls fail()
        abandon_messages();
        throw;
      }
    }
    send_failure_if_free();
  }

 private:
  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  // Whether this is the copy in a process that fork() made, a data loader's for example: it shares the connections, and
  // must not end them.
  bool is_copy() const { return ::getpid() != process_; }

  // ---- A call ----

  void begin_call() {
    watch_.begin_call(Clock::now());
    if (!has_read_setup_) {  // control messages that the set-up has received
      has_read_setup_ = true;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) read_control_messages(r);
      }
    }
    wait(milliseconds(0));
    if (told_) throw TransportError(told_->error);
  }

  void start_messages(std::span<const Outgoing> out, std::span<const Incoming> in) {
    copy_own_message(out, in);
    for (const Incoming& message : in) {
      if (message.rank == rank_) continue;
      at(message.rank).receive.start(*message.bytes, message.size);
      active_.push_back(message.rank);
    }
    for (const Outgoing& message : out) {
      if (message.rank == rank_) continue;
      Peer& peer = at(message.rank);
      peer.send.start(message.bytes);
      if (!peer.receive.is_active()) active_.push_back(message.rank);
    }
  }

  void copy_own_message(std::span<const Outgoing> out, std::span<const Incoming> in) const {
    const auto is_own = [&](const auto& message) { return message.rank == rank_; };
    const auto from = std::find_if(out.begin(), out.end(), is_own);
    const auto to = std::find_if(in.begin(), in.end(), is_own);
    if (to != in.end()) to->bytes->assign(from->bytes.begin(), from->bytes.end());
  }

  void transfer() {
    while (true) {
      bool progress = false;
      bool can_move = false;
      for (const int rank : active_) {
        progress |= move(rank);
        can_move |= at(rank).can_move();
      }
      std::erase_if(active_, [&](int rank) { return !at(rank).is_active(); });
      if (active_.empty()) return;
      const Clock::time_point now = Clock::now();
      if (progress) watch_.note_progress(now);
      check_peers(now, progress);
      wait(can_move ? milliseconds(0) : pause(now));
    }
  }

  // Returns whether bytes went to or came from the rank.
  bool move(int rank) {
    Peer& peer = at(rank);
    std::size_t bytes = 0;
    const auto note = [&](const Moved& moved, bool& flag) {
      bytes += moved.bytes;
      if (moved.would_block || moved.error != 0) flag = false;
      if (moved.error != 0 && !peer.ended_at) peer.ended_at = Clock::now();
    };
    if (peer.send.is_active() && peer.is_writable)
      note(peer.send.progress(peer.connections.messages), peer.is_writable);
    if (peer.receive.is_active() && peer.is_readable) {
      note(peer.receive.progress(peer.connections.messages, rank), peer.is_readable);
    }
    return bytes != 0;
  }

  void end_call() {
    if (!watch_.has_sent_status()) return;
    status_.missing.clear();
    send_to_all(status_);
  }

  // They refer to memory of the caller.
  void abandon_messages() {
    active_.clear();
    for (Peer& peer : peers_) {
      peer.send.clear();
      peer.receive.clear();
    }
  }

  // ---- Waiting ----

  // Throws if this rank or another one has failed, if one that it waits for has ended, or if all of these were silent
  // for the deadline.
  void check_peers(Clock::time_point now, bool progress) {
    throw_if_failed();
    if (told_ && (!progress || now >= told_->at + kReadFirst)) throw TransportError(told_->error);
    for (const int rank : active_) {
      const Peer& peer = at(rank);
      if (!peer.ended_at) continue;
      if (told_) throw TransportError(told_->error);
      if (!peer.connections.control.has_ended() && now < *peer.ended_at + end_grace()) continue;
      throw TransportError(fmt::format("rank {} has ended; rank {} was waiting for it", rank, rank_), rank);
    }
    if (watch_.is_status_due(now)) send_status(now);
    flush_control_messages();
    if (progress) return;
    const auto late = watch_.find_late_rank(now, [&](std::vector<int>& missing) { list_missing_ranks(missing); });
    if (!late) return;
    throw TransportError(fmt::format("rank {} did not respond within {} ms; rank {} was waiting for it", *late,
                                     deadline_.count(), rank_),
                         *late);
  }

  milliseconds end_grace() const { return std::min(kEndGrace, deadline_ / 4); }

  void list_missing_ranks(std::vector<int>& missing) {
    missing.assign(active_.begin(), active_.end());
    std::sort(missing.begin(), missing.end());
  }

  void send_status(Clock::time_point now) {
    status_.age_ms = watch_.note_status(now);
    list_missing_ranks(status_.missing);
    send_to_all(status_);
  }

  milliseconds pause(Clock::time_point now) {
    const auto until_event = std::chrono::ceil<milliseconds>(watch_.next_event() - now);
    const bool is_hurried = std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.connections.control.has_unsent() || (peer.is_active() && peer.ended_at);
    });
    const milliseconds longest = std::min(kLongestPause, look_every(deadline_));
    return std::clamp(until_event, milliseconds(1), is_hurried ? std::min(milliseconds(5), longest) : longest);
  }

  void wait(milliseconds pause) {
    const int count =
        ::epoll_wait(poll_.fd(), events_.data(), static_cast<int>(events_.size()), static_cast<int>(pause.count()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events_[static_cast<std::size_t>(i)];
      const auto rank = static_cast<int>(event.data.u64 / tcp::kChannels);
      if (rank == rank_) {
        std::uint64_t wakes = 0;
        [[maybe_unused]] const ssize_t read = ::read(wake_.fd(), &wakes, sizeof wakes);
      } else if (static_cast<tcp::Channel>(event.data.u64 % tcp::kChannels) == tcp::Channel::control) {
        at(rank).connections.control.receive();
        read_control_messages(rank);
      } else {
        at(rank).is_readable |= (event.events & ~std::uint32_t{EPOLLOUT}) != 0;
        at(rank).is_writable |= (event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
      }
    }
  }

  void add(const Socket& socket, std::uint32_t events, int rank, tcp::Channel channel) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = static_cast<std::uint64_t>(rank) * tcp::kChannels + static_cast<std::uint64_t>(channel);
    if (::epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, socket.fd(), &event) == 0) return;
    throw TransportError(fmt::format("[tcp] epoll: {}", tcp::error_text(errno)), rank_);
  }

  // ---- Control messages ----

  void read_control_messages(int from) {
    tcp::ControlConnection& control = at(from).connections.control;
    tcp::Parsed parsed = control.next(size_, received_);
    for (; parsed == tcp::Parsed::message; parsed = control.next(size_, received_)) {
      if (received_.kind == ControlMessage::Kind::status) {
        watch_.read_status(from, received_.age_ms, received_.missing, Clock::now());
      } else if (!told_) {
        told_ = {TransportError(received_.text, received_.rank), Clock::now()};
      }
    }
    if (parsed == tcp::Parsed::garbage) {
      throw TransportError(fmt::format("rank {} sent a control message that cannot be read", from), from);
    }
    if (control.has_ended() && at(from).has_control_events) {
      at(from).has_control_events = false;
      ::epoll_ctl(poll_.fd(), EPOLL_CTL_DEL, control.socket().fd(), nullptr);
    }
  }

  void send_to_all(const ControlMessage& message) {
    bytes_.clear();
    tcp::write(message, bytes_);
    for (Peer& peer : peers_) peer.connections.control.send(bytes_);
  }

  // Returns whether all has been sent.
  bool flush_control_messages() {
    bool complete = true;
    for (Peer& peer : peers_) {
      if (peer.connections.control.has_unsent()) peer.connections.control.flush();
      complete &= !peer.connections.control.has_unsent();
    }
    return complete;
  }

  // Every rank that hears of a failure tells it to all others before it closes its connections. So a rank that sees
  // this one end knows the reason, even if it has not heard from the first that failed. REQUIRES: holds in_use_.
  void tell_all_that_it_failed(int culprit, std::string_view text) noexcept {
    if (has_told_failure_) return;
    has_told_failure_ = true;
    try {
      send_to_all(
          {.kind = ControlMessage::Kind::failed, .rank = culprit >= 0 ? culprit : rank_, .text = std::string(text)});
      const Clock::time_point end = Clock::now() + kFailureTime;
      while (!flush_control_messages() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks will notice
    }
  }

  // After each call as well, so no failure stays unsent: whoever adds one either gets the lock or is seen by its owner.
  void send_failure_if_free() {
    while (has_failure_ && in_use_.try_lock()) {
      const std::lock_guard use(in_use_, std::adopt_lock);
      std::string text;
      {
        const std::lock_guard lock(failure_mutex_);
        text = failure_;
        has_failure_ = false;
      }
      tell_all_that_it_failed(rank_, text);
    }
  }

  // ---- The end ----

  // The last messages must not be lost. When a socket is closed that has unread bytes, or to which more are sent, the
  // system drops what it has not sent yet. So this waits until the other side's system has everything.
  void close() noexcept {
    try {
      const std::lock_guard use(in_use_);
      pass_on_failure();
      for (Peer& peer : peers_) {  // this one first: see kEndGrace
        ::shutdown(peer.connections.control.socket().fd(), SHUT_WR);
        ::shutdown(peer.connections.messages.fd(), SHUT_WR);
      }
      const auto limit = std::min(deadline_, has_told_failure_ ? kFailureTime : kLastMessagesTime);
      const Clock::time_point end = Clock::now() + limit;
      while (!is_everything_acknowledged() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks will notice
    }
  }

  // A failure that this rank has not read yet.
  void pass_on_failure() {
    wait(milliseconds(0));
    if (told_) tell_all_that_it_failed(told_->error.rank(), told_->error.what());
  }

  bool is_everything_acknowledged() {
    bool complete = true;
    for (Peer& peer : peers_) {
      for (const Socket* socket : {&peer.connections.control.socket(), &std::as_const(peer.connections.messages)}) {
        if (!socket->is_open()) continue;
        int unsent = 0;
        if (::ioctl(socket->fd(), SIOCOUTQ, &unsent) != 0 || unsent == 0) continue;
        discard_received(*socket);
        complete = false;
      }
    }
    return complete;
  }

  static void discard_received(const Socket& socket) {
    std::array<std::byte, 4096> bytes;
    for (int i = 0; i < 256 && tcp::receive(socket, bytes).bytes != 0; ++i) {
    }
  }

  const int rank_;
  const int size_;
  const milliseconds deadline_;
  const pid_t process_ = ::getpid();
  Watch watch_;
  std::vector<Peer> peers_;  // one for each rank
  Socket poll_;
  Socket wake_;
  bool has_read_setup_ = false;

  // Of the current call; kept so that nothing is allocated in each call.
  std::vector<int> active_;  // ranks with a message that is not complete
  std::vector<epoll_event> events_;
  ControlMessage status_;
  ControlMessage received_;
  std::vector<std::byte> bytes_;

  struct Told {
    TransportError error;
    Clock::time_point at;
  };
  std::optional<Told> told_;  // another rank said that this transport has failed

  std::mutex in_use_;  // held by a call: fail() may come from another thread
  bool has_told_failure_ = false;
  std::mutex failure_mutex_;
  std::atomic<bool> has_failure_ = false;
  std::string failure_;  // what fail() was told, until it is sent
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(TcpListener listener, int rank, std::span<const std::string> addresses,
                                              std::string_view token, milliseconds deadline) {
  const std::size_t size = addresses.size();
  if (size < 1 || size > tcp::kMostRanks) {
    throw UsageError(fmt::format("[tcp] {} addresses are not in [1, {}]", size, tcp::kMostRanks));
  }
  if (rank < 0 || static_cast<std::size_t>(rank) >= size) {
    throw UsageError(fmt::format("[tcp] rank {} is not in [0, {})", rank, size));
  }
  if (token.size() > tcp::kLongestToken) {
    throw UsageError(fmt::format("[tcp] a token of {} bytes is longer than {}", token.size(), tcp::kLongestToken));
  }
  check_deadline(deadline);
  Socket socket(std::exchange(listener.socket_, -1));
  if (size == 1) return std::make_unique<TcpTransport>(std::vector<Connections>(1), rank, deadline);
  if (!socket.is_open()) throw UsageError("[tcp] the listener was moved from: every transport needs one of its own");
  for (const std::string& address : addresses) tcp::split_address(address);
  return std::make_unique<TcpTransport>(tcp::connect_all(socket, rank, addresses, token, deadline), rank, deadline);
}

}  // namespace sparsewire
