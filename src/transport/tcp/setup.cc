#include "transport/tcp/setup.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <optional>

#include "sparsewire/errors.h"
#include "transport/deadline.h"

namespace sparsewire::tcp {
namespace {

using Clock = std::chrono::steady_clock;

// After an error that may pass: a host that is not reachable yet, or a rank that dropped this one among strangers.
constexpr std::chrono::milliseconds kRetry(100);
// What another process has taken may be this rank's own connection before, whose end has not arrived yet.
constexpr int kTimesTaken = 3;
// A rank that refuses a connection may have failed because of another one. That is told over other connections, which
// get this time, or a quarter of the deadline. What is told may also be a failure of a first call, on a rank that was
// connected with all earlier than this one; then the set-up completes, and the first call of this rank throws it.
constexpr std::chrono::milliseconds kGrace(500);
// Connections that have not said yet who they are, besides those that are expected. The oldest is dropped; a rank that
// was dropped tries again.
constexpr std::size_t kMostStrangers = 64;
// In a row: this rank's own hellos must not wait, or it is a stranger elsewhere for too long.
constexpr int kMostAccepted = 64;
// Not the whole rest of a long deadline: the time in poll() is an int.
constexpr std::chrono::milliseconds kLongestPause(60'000);

// What the other side says first, as far as it has arrived: a hello with its token, or a refusal.
class HelloReader {
 public:
  enum class State : std::uint8_t { incomplete, hello, refusal, other_version, garbage, lost };

  // Reads no byte more than that has.
  State read(const Socket& socket) {
    while (true) {
      if (bytes_.size() == kHeaderBytes) {
        const State state = read_header();
        if (state != State::hello) return state;
      }
      const std::size_t wanted = kHeaderBytes + (bytes_.size() < kHeaderBytes ? 0 : hello_.token_bytes);
      const std::size_t before = bytes_.size();
      if (before == wanted) return State::hello;
      bytes_.resize(wanted);
      const Moved moved = receive(socket, std::span(bytes_).subspan(before));
      bytes_.resize(before + moved.bytes);
      if (moved.error != 0) {
        error_ = moved.error;
        return State::lost;
      }
      if (moved.would_block) return State::incomplete;
    }
  }

  const Hello& hello() const { return hello_; }
  std::span<const std::byte> token() const { return std::span(bytes_).subspan(kHeaderBytes); }
  Refusal refusal() const { return refusal_; }
  int error() const { return error_; }  // of a connection that is lost

 private:
  State read_header() {
    const ConstHeader header(bytes_.data(), kHeaderBytes);
    if (const auto hello = read_hello(header)) {
      hello_ = *hello;
      return State::hello;
    }
    if (const auto refusal = read_refusal(header)) {
      refusal_ = *refusal;
      return State::refusal;
    }
    return is_hello_of_another_version(header) ? State::other_version : State::garbage;
  }

  std::vector<std::byte> bytes_;
  Hello hello_;
  Refusal refusal_ = Refusal::version;
  int error_ = 0;
};

// A connection to a lower rank.
struct Attempt {
  enum class State : std::uint8_t { waiting, connecting, greeting, done, refused };
  int rank;
  Channel channel;
  State state = State::waiting;
  Socket socket = {};
  HelloReader reader = {};
  std::size_t next_address = 0;
  Clock::time_point time = {};  // of the next attempt, or when it was refused
  int error = 0;
  std::string why = {};  // it was refused
  int times_taken = 0;
};

// A connection that was accepted.
struct Stranger {
  Socket socket;  // closed once it is known who that is
  HelloReader reader = {};
};

class Setup {
 public:
  Setup(const Socket& listener, int rank, std::span<const std::string> addresses, std::string_view token,
        std::chrono::milliseconds deadline)
      : listener_(listener),
        rank_(rank),
        size_(static_cast<int>(addresses.size())),
        addresses_(addresses),
        token_(token),
        deadline_(deadline),
        end_(Clock::now() + deadline),
        connections_(addresses.size()),
        resolved_(addresses.size()) {}

  std::vector<Connections> run() {
    try {
      for (int r = 0; r < rank_; ++r) {
        const HostAndPort address = split_address(address_of(r));
        resolved_[static_cast<std::size_t>(r)] = resolve(address.host, address.port, r);
        attempts_.push_back({r, Channel::messages});
        attempts_.push_back({r, Channel::control});
      }
      last_look_ = Clock::now();  // not before: to resolve a name may take long
      while (first_missing()) wait_and_progress();
    } catch (const TransportError& error) {
      tell_others(error);
      throw;
    }
    return std::move(connections_);
  }

 private:
  const std::string& address_of(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }
  Connections& at(int rank) { return connections_[static_cast<std::size_t>(rank)]; }

  // The lowest rank that is not connected. A connection to a lower rank counts only when that one has answered.
  std::optional<int> first_missing() {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && !(at(r).messages.is_open() && at(r).control.is_open())) return r;
    }
    return std::nullopt;
  }

  void wait_and_progress() {
    Clock::time_point now = Clock::now();
    for (Attempt& attempt : attempts_) {
      if (attempt.state == Attempt::State::waiting && now >= attempt.time) start(attempt, now);
    }
    wait(now);
    now = Clock::now();
    if (was_suspended(last_look_, now, deadline_)) end_ += now - last_look_;
    last_look_ = now;
    for (Attempt& attempt : attempts_) progress(attempt, now);
    greet_strangers();
    accept_strangers();
    listen_to_control_messages(now);
    if (!first_missing()) return;
    if (told_ && now >= told_at_ + grace()) throw TransportError(*told_);
    if (!told_) throw_if_refused(now);
    if (now >= end_) throw_missing();
  }

  void wait(Clock::time_point now) {
    Clock::time_point until = end_;
    polled_.clear();
    const auto add = [&](const Socket& socket, short events) { polled_.push_back({socket.fd(), events, 0}); };
    for (const Stranger& stranger : strangers_) add(stranger.socket, POLLIN);  // first: see greet_strangers()
    add(listener_, POLLIN);
    for (const Attempt& attempt : attempts_) {
      if (attempt.state == Attempt::State::connecting) add(attempt.socket, POLLOUT);
      if (attempt.state == Attempt::State::greeting) add(attempt.socket, POLLIN);
      if (attempt.state == Attempt::State::waiting) until = std::min(until, attempt.time);
      if (attempt.state == Attempt::State::refused) until = std::min(until, attempt.time + grace());
    }
    for (const Connections& other : connections_) {
      if (other.control.is_open() && !other.control.has_ended()) add(other.control.socket(), POLLIN);
    }
    if (told_) until = std::min(until, told_at_ + grace());
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    const std::int64_t longest = std::min(kLongestPause, look_every(deadline_)).count();
    ::poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<std::int64_t>(pause.count(), 0, longest)));
  }

  void greet_strangers() {
    for (std::size_t i = 0; i < strangers_.size(); ++i) {
      if (polled_[i].revents != 0) greet(strangers_[i]);
    }
    std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.socket.is_open(); });
  }

  void accept_strangers() {
    for (int i = 0; i < kMostAccepted; ++i) {
      Stranger stranger{Socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))};
      if (stranger.socket.is_open()) {
        greet(stranger);  // what it says has mostly arrived with it
        if (!stranger.socket.is_open()) continue;
        if (strangers_.size() >= kMostStrangers + 2 * static_cast<std::size_t>(size_)) drop_oldest_stranger();
        strangers_.push_back(std::move(stranger));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (strangers_.empty()) {
          throw TransportError(fmt::format("[tcp] rank {} cannot accept connections: {}", rank_, error_text(errno)),
                               rank_);
        }
        drop_oldest_stranger();
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;  // EAGAIN; or an error of a connection that is gone
      }
    }
  }

  void drop_oldest_stranger() {
    greet(strangers_.front());  // it may have spoken since
    if (strangers_.front().socket.is_open()) strangers_.front().socket.abort();
    strangers_.pop_front();
  }

  // Closes or takes the connection unless there is more to come. Who says no hello gets no answer.
  void greet(Stranger& stranger) {
    const HelloReader::State state = stranger.reader.read(stranger.socket);
    if (state == HelloReader::State::incomplete) return;
    Socket socket = std::move(stranger.socket);
    const Hello& hello = stranger.reader.hello();
    if (state == HelloReader::State::other_version) {
      refuse(socket, Refusal::version);
    } else if (state == HelloReader::State::hello) {
      if (const auto why = reason_to_refuse(hello, stranger.reader.token())) return refuse(socket, *why);
      if (!send_hello(socket, hello.channel)) return;
      set_options(socket);
      at(hello.rank).open(hello.channel, std::move(socket));
    }
  }

  // The token first: a stranger is told nothing else.
  std::optional<Refusal> reason_to_refuse(const Hello& hello, std::span<const std::byte> token) {
    if (!is_same_token(token, token_)) return Refusal::token;
    if (hello.size != size_) return Refusal::size;
    if (hello.rank <= rank_) return Refusal::rank;
    // A rank that lost its connection comes again.
    const Socket& before = at(hello.rank).socket(hello.channel);
    if (before.is_open() && !has_ended(before)) return Refusal::taken;
    return std::nullopt;
  }

  void refuse(const Socket& socket, Refusal why) {
    ++refused_;
    std::array<std::byte, kHeaderBytes> header;
    write(why, header);
    send(socket, header);
  }

  // A few bytes on a new connection: they are taken at once.
  bool send_hello(const Socket& socket, Channel channel) {
    const auto bytes = hello_with_token({channel, rank_, size_, token_.size()}, token_);
    return send(socket, bytes).bytes == bytes.size();
  }

  void start(Attempt& attempt, Clock::time_point now) {
    const auto& candidates = resolved_[static_cast<std::size_t>(attempt.rank)];
    const SocketAddress& address = candidates[attempt.next_address];
    attempt.socket = socket_for(attempt.rank, address.storage.ss_family);
    set_options(attempt.socket);
    attempt.state = Attempt::State::connecting;
    if (::connect(attempt.socket.fd(), address.get(), address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
      not_connected(attempt, errno, now);
    } else {
      finish_connecting(attempt, now);
    }
  }

  // Strangers must not use up the files that this process may open.
  Socket socket_for(int rank, int family) {
    while (true) {
      try {
        return make_socket(family, SOCK_STREAM, rank);
      } catch (const TransportError&) {
        if (strangers_.empty()) throw;
        drop_oldest_stranger();
      }
    }
  }

  // Its listener was there before its address was published: if it refuses, it has ended.
  void not_connected(Attempt& attempt, int error, Clock::time_point now) {
    attempt.error = error;
    attempt.socket.close();
    attempt.time = now;
    attempt.state = Attempt::State::waiting;
    if (++attempt.next_address < resolved_[static_cast<std::size_t>(attempt.rank)].size()) return;
    attempt.next_address = 0;
    if (error == ECONNREFUSED) {
      attempt.state = Attempt::State::refused;
      attempt.why = "nobody listens there, it has ended";
    } else {
      attempt.time = now + kRetry;
    }
  }

  // The connection was lost before the rank answered: it was dropped there, among strangers, or that rank has ended,
  // and the next attempt will tell.
  void try_again(Attempt& attempt, int error, Clock::time_point now) {
    attempt.error = error;
    attempt.socket.close();
    attempt.reader = {};
    attempt.time = now + kRetry;
    attempt.state = Attempt::State::waiting;
  }

  void progress(Attempt& attempt, Clock::time_point now) {
    if (attempt.state == Attempt::State::connecting) finish_connecting(attempt, now);
    if (attempt.state != Attempt::State::greeting) return;
    const HelloReader::State state = attempt.reader.read(attempt.socket);
    if (state == HelloReader::State::incomplete) return;
    if (state == HelloReader::State::lost) return try_again(attempt, attempt.reader.error(), now);
    if (state == HelloReader::State::refusal && attempt.reader.refusal() == Refusal::taken &&
        ++attempt.times_taken < kTimesTaken) {
      return try_again(attempt, ECONNRESET, now);
    }
    attempt.why = what_is_wrong(attempt, state);
    if (!attempt.why.empty()) {
      attempt.socket.close();
      attempt.state = Attempt::State::refused;
      attempt.time = now;
      return;
    }
    attempt.state = Attempt::State::done;
    at(attempt.rank).open(attempt.channel, std::move(attempt.socket));
  }

  // With the answer of a lower rank; empty if it is right.
  std::string what_is_wrong(const Attempt& attempt, HelloReader::State state) const {
    if (state == HelloReader::State::refusal) return "it refused the connection: " + text_of(attempt.reader.refusal());
    const Hello& hello = attempt.reader.hello();
    if (state == HelloReader::State::hello && hello.size == size_ && hello.rank == attempt.rank &&
        hello.channel == attempt.channel && is_same_token(attempt.reader.token(), token_)) {
      return "";
    }
    return "what answers there is not that rank, or of another version";
  }

  std::string text_of(Refusal why) const {
    switch (why) {
      case Refusal::version:
        return "it has another version";
      case Refusal::token:
        return "it has another token";
      case Refusal::size:
        return fmt::format("it has another number of ranks than {}", size_);
      case Refusal::rank:
        return fmt::format("it waits for higher ranks than {} only", rank_);
      case Refusal::taken:
        return fmt::format("another process is connected as rank {}", rank_);
    }
    return "";
  }

  void finish_connecting(Attempt& attempt, Clock::time_point now) {
    pollfd polled{attempt.socket.fd(), POLLOUT, 0};
    if (::poll(&polled, 1, 0) != 1) return;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(attempt.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      not_connected(attempt, error, now);
    } else if (send_hello(attempt.socket, attempt.channel)) {
      attempt.state = Attempt::State::greeting;
    } else {
      try_again(attempt, ECONNRESET, now);
    }
  }

  // A rank that is connected may know why another one does not come.
  void listen_to_control_messages(Clock::time_point now) {
    for (Connections& other : connections_) {
      if (!other.control.is_open()) continue;
      other.control.receive();
      const auto failure = other.control.find_failure(size_);
      if (!failure || told_) continue;
      told_.emplace(failure->text, failure->rank);
      told_at_ = now;
    }
  }

  std::chrono::milliseconds grace() const { return std::min(kGrace, deadline_ / 4); }

  void throw_if_refused(Clock::time_point now) const {
    for (const Attempt& attempt : attempts_) {
      if (attempt.state != Attempt::State::refused || now < attempt.time + grace()) continue;
      throw TransportError(fmt::format("[tcp] rank {} at {}: {}", attempt.rank, address_of(attempt.rank), attempt.why),
                           attempt.rank);
    }
  }

  [[noreturn]] void throw_missing() {
    if (told_) throw TransportError(*told_);
    const int missing = first_missing().value();
    std::string what = fmt::format("[tcp] rank {} at {} was not connected with rank {} within {} ms", missing,
                                   address_of(missing), rank_, deadline_.count());
    for (const Attempt& attempt : attempts_) {
      if (attempt.rank != missing || attempt.error == 0) continue;
      what += fmt::format(": {}", error_text(attempt.error));
      break;
    }
    if (refused_ > 0) {
      what +=
          fmt::format("; {} connections with another token, rank, number of ranks or version were refused", refused_);
    }
    throw TransportError(what, missing);
  }

  void tell_others(const TransportError& error) {
    std::vector<std::byte> bytes;
    const int culprit = error.rank() >= 0 ? error.rank() : rank_;
    write(ControlMessage{.kind = ControlMessage::Kind::failed, .rank = culprit, .text = error.what()}, bytes);
    for (Connections& other : connections_) other.control.send(bytes);
  }

  const Socket& listener_;
  const int rank_;
  const int size_;
  const std::span<const std::string> addresses_;
  const std::string_view token_;
  const std::chrono::milliseconds deadline_;
  Clock::time_point end_;  // later, if this process was suspended
  Clock::time_point last_look_;
  std::vector<Connections> connections_;
  std::vector<std::vector<SocketAddress>> resolved_;  // of the lower ranks
  std::vector<Attempt> attempts_;
  std::deque<Stranger> strangers_;
  std::vector<pollfd> polled_;
  int refused_ = 0;
  std::optional<TransportError> told_;  // another rank said that this transport has failed
  Clock::time_point told_at_;
};

}  // namespace

std::vector<Connections> connect_all(const Socket& listener, int rank, std::span<const std::string> addresses,
                                     std::string_view token, std::chrono::milliseconds deadline) {
  return Setup(listener, rank, addresses, token, deadline).run();
}

}  // namespace sparsewire::tcp
