#include "transport/tcp/setup.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>

#include "sparsewire/errors.h"
#include "transport/deadline.h"

namespace sparsewire::tcp {
namespace {

using Clock = std::chrono::steady_clock;

// After an error that may pass: a host that is not reachable yet.
constexpr std::chrono::milliseconds kRetry(100);
// A rank that refuses a connection may have failed because of another one. That is told over other connections, which
// get this time, or a quarter of the deadline. What is told may also be a failure of a first call, on a rank that was
// connected with all earlier than this one; then the set-up completes, and the first call of this rank throws it.
constexpr std::chrono::milliseconds kGrace(500);
// Connections that have not said yet who they are, besides those that are expected. The oldest is dropped.
constexpr std::size_t kMostStrangers = 64;
// Not the whole rest of a long deadline: the time in poll() is an int.
constexpr std::chrono::milliseconds kLongestPause(60'000);

// The other side's hello with its token, as far as it has arrived.
class HelloReader {
 public:
  // `token_bytes`: how long the token has to be. Reads no byte more than the hello has.
  enum class State : std::uint8_t { incomplete, complete, broken };
  State read(const Socket& socket, std::size_t token_bytes) {
    while (true) {
      if (bytes_.size() == kHeaderBytes && !check_header(token_bytes)) return State::broken;
      const std::size_t wanted = (bytes_.size() < kHeaderBytes ? 0 : token_bytes) + kHeaderBytes;
      const std::size_t before = bytes_.size();
      if (before == wanted) return State::complete;
      bytes_.resize(wanted);
      const Moved moved = receive(socket, std::span(bytes_).subspan(before));
      bytes_.resize(before + moved.bytes);
      if (moved.error != 0) return State::broken;
      if (moved.would_block) return State::incomplete;
    }
  }

  // Once it is complete.
  const Hello& hello() const { return hello_; }
  std::span<const std::byte> token() const { return std::span(bytes_).subspan(kHeaderBytes); }

  bool has_header() const { return has_header_; }

 private:
  bool check_header(std::size_t token_bytes) {
    const auto hello = read_hello(ConstHeader(bytes_.data(), kHeaderBytes));
    if (!hello) return false;
    hello_ = *hello;
    has_header_ = true;
    return hello_.token_bytes == token_bytes;
  }

  std::vector<std::byte> bytes_;
  Hello hello_;
  bool has_header_ = false;
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
};

// A connection that was accepted.
struct Stranger {
  Socket socket;
  HelloReader reader = {};
  bool is_finished = false;
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
    accept_all();
    for (Stranger& stranger : strangers_) greet(stranger);
    std::erase_if(strangers_, [](const Stranger& stranger) { return stranger.is_finished; });
    while (strangers_.size() > kMostStrangers + 2 * static_cast<std::size_t>(size_)) strangers_.pop_front();
    for (Attempt& attempt : attempts_) progress(attempt, now);
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
    add(listener_, POLLIN);
    for (const Stranger& stranger : strangers_) add(stranger.socket, POLLIN);
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

  void accept_all() {
    while (true) {
      Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.is_open()) {
        strangers_.push_back({std::move(socket)});
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (strangers_.empty()) {
          throw TransportError(fmt::format("[tcp] rank {} cannot accept connections: {}", rank_, error_text(errno)),
                               rank_);
        }
        strangers_.pop_front();
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;  // EAGAIN; or an error of a connection that is gone
      }
    }
  }

  // A connection that does not present itself as a rank that is expected is dropped without an answer.
  void greet(Stranger& stranger) {
    const HelloReader::State state = stranger.reader.read(stranger.socket, token_.size());
    if (state == HelloReader::State::incomplete) return;
    stranger.is_finished = true;
    const Hello& hello = stranger.reader.hello();
    if (state == HelloReader::State::broken || hello.size != size_ || hello.rank <= rank_ ||
        at(hello.rank).is_open(hello.channel) || !is_same_token(stranger.reader.token(), token_)) {
      if (stranger.reader.has_header()) ++refused_;
      stranger.socket.close();
      return;
    }
    if (!send_hello(stranger.socket, hello.channel)) return;
    set_options(stranger.socket);
    at(hello.rank).open(hello.channel, std::move(stranger.socket));
  }

  // A few bytes on a new connection: they are taken at once.
  bool send_hello(const Socket& socket, Channel channel) {
    const auto bytes = hello_with_token({channel, rank_, size_, token_.size()}, token_);
    return send(socket, bytes).bytes == bytes.size();
  }

  void start(Attempt& attempt, Clock::time_point now) {
    const auto& candidates = resolved_[static_cast<std::size_t>(attempt.rank)];
    const SocketAddress& address = candidates[attempt.next_address];
    attempt.socket = make_socket(address.storage.ss_family, SOCK_STREAM, attempt.rank);
    set_options(attempt.socket);
    attempt.state = Attempt::State::connecting;
    if (::connect(attempt.socket.fd(), address.get(), address.length) == 0) return;
    if (errno != EINPROGRESS && errno != EINTR) not_connected(attempt, errno, now);
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
    } else {
      attempt.time = now + kRetry;
    }
  }

  void progress(Attempt& attempt, Clock::time_point now) {
    if (attempt.state == Attempt::State::connecting) finish_connecting(attempt, now);
    if (attempt.state != Attempt::State::greeting) return;
    const HelloReader::State state = attempt.reader.read(attempt.socket, token_.size());
    if (state == HelloReader::State::incomplete) return;
    const Hello& hello = attempt.reader.hello();
    if (state == HelloReader::State::broken || hello.size != size_ || hello.rank != attempt.rank ||
        hello.channel != attempt.channel || !is_same_token(attempt.reader.token(), token_)) {
      attempt.socket.close();
      attempt.state = Attempt::State::refused;
      attempt.time = now;
      return;
    }
    attempt.state = Attempt::State::done;
    at(attempt.rank).open(attempt.channel, std::move(attempt.socket));
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
      not_connected(attempt, ECONNRESET, now);
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
      const char* const why = attempt.error == ECONNREFUSED
                                  ? "nobody listens there, it has ended"
                                  : "it refused the connection: it has another token, another number of ranks or "
                                    "another version, or it has ended";
      throw TransportError(fmt::format("[tcp] rank {} at {}: {}", attempt.rank, address_of(attempt.rank), why),
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
      what += fmt::format("; {} connections with another token, rank or number of ranks were refused", refused_);
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
