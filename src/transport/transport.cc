// The checked calls, and the collectives made of messages between two ranks.
#include "sparsewire/transport.h"

#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "sparsewire/errors.h"
#include "transport/all_reduce.h"
#include "transport/arguments.h"

namespace sparsewire {
// The first failure; every later call throws it again. fail() may come from another thread.
struct Transport::Failure {
  std::atomic<bool> is_set = false;
  std::mutex mutex;
  std::optional<TransportError> error;

  void set(const TransportError& first) {
    const std::lock_guard lock(mutex);
    if (!error) error.emplace(first);
    is_set = true;
  }

  void throw_if_set() {
    if (!is_set) return;
    const std::lock_guard lock(mutex);
    throw TransportError(*error);
  }
};

// Of the collectives; kept so that nothing is allocated in each call.
struct Transport::Buffers {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  std::vector<std::vector<std::byte>> empty;  // of barrier
  std::optional<AllReduce> all_reduce;

  // Adds a message to and one from the rank.
  void add(int rank, std::span<const std::byte> sent, std::vector<std::byte>& bytes) {
    out.push_back({rank, sent});
    in.push_back({rank, &bytes});
  }
  void clear() {
    out.clear();
    in.clear();
  }
};

Transport::Transport() : failure_(std::make_unique<Failure>()), buffers_(std::make_unique<Buffers>()) {}
Transport::~Transport() = default;

void Transport::throw_if_failed() { failure_->throw_if_set(); }

template <class Call>
void Transport::run(Call call) {
  throw_if_failed();
  try {
    call();
  } catch (const DamagedMessage& error) {
    tell(error);
    throw;
  } catch (const TransportError& error) {
    failure_->set(error);
    throw;
  } catch (const UsageError&) {  // from a transport that this one wraps: nothing was sent
    throw;
  } catch (const std::exception& error) {  // no memory, for example: the others must not wait for this rank
    fail(error.what());
    throw;
  }
}

void Transport::fail(std::string_view why) noexcept {
  try {
    failure_->set(TransportError(failure_text(rank(), why), rank()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory for the text; calls fail for that, too
  }
}

void Transport::send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) {
  check_messages(rank(), size(), out, in);
  run([&] {
    do_send_receive(out, in);
    check_sizes(in);
  });
}

void Transport::all_reduce_sum(WritableNumbers numbers) {
  check_numbers(numbers);
  run([&] { do_all_reduce_sum(numbers); });
}

void Transport::all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  run([&] { do_all_gather(mine, all); });
}

void Transport::all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from) {
  check_message_count(to.size(), size());
  run([&] { do_all_to_all(to, from); });
}

void Transport::gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  check_root("gather", root, size());
  run([&] { do_gather(root, mine, all); });
}

void Transport::broadcast(int root, std::vector<std::byte>& bytes) {
  check_root("broadcast", root, size());
  run([&] { do_broadcast(root, bytes); });
}

void Transport::barrier() {
  run([&] { do_barrier(); });
}

// The sender goes on and may wait for this rank, so all ranks are told.
void Transport::check_sizes(std::span<const Incoming> in) {
  for (const Incoming& message : in) {
    if (message.size == kUnknownSize || message.bytes->size() == message.size) continue;
    const TransportError error(fmt::format("rank {} sent {} bytes, but rank {} expects {}: they made different calls",
                                           message.rank, message.bytes->size(), rank(), message.size),
                               message.rank);
    tell(error);
    throw TransportError(error);
  }
}

// The others do not see it.
void Transport::tell(const TransportError& error) {
  failure_->set(error);
  fail(error.what());
}

void Transport::do_all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  all.resize(static_cast<std::size_t>(size()));
  buffers_->clear();
  for (int r = 0; r < size(); ++r) buffers_->add(r, mine, all[static_cast<std::size_t>(r)]);
  send_receive(buffers_->out, buffers_->in);
}

void Transport::do_all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from) {
  from.resize(static_cast<std::size_t>(size()));
  buffers_->clear();
  for (std::size_t r = 0; r < to.size(); ++r) buffers_->add(static_cast<int>(r), to[r], from[r]);
  send_receive(buffers_->out, buffers_->in);
}

void Transport::do_gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  all.resize(rank() == root ? static_cast<std::size_t>(size()) : 0);
  buffers_->clear();
  buffers_->out.push_back({root, mine});
  for (std::size_t r = 0; r < all.size(); ++r) buffers_->in.push_back({static_cast<int>(r), &all[r]});
  send_receive(buffers_->out, buffers_->in);
}

void Transport::do_broadcast(int root, std::vector<std::byte>& bytes) {
  buffers_->clear();
  if (rank() == root) {
    for (int r = 0; r < size(); ++r) {
      if (r != root) buffers_->out.push_back({r, bytes});
    }
  } else {
    buffers_->in.push_back({root, &bytes});
  }
  send_receive(buffers_->out, buffers_->in);
}

void Transport::do_barrier() { all_gather({}, buffers_->empty); }

void Transport::do_all_reduce_sum(WritableNumbers numbers) { all_reduce().sum(numbers); }
void Transport::check_same_numbers(const WritableNumbers& numbers) { all_reduce().check_same(numbers); }

AllReduce& Transport::all_reduce() {
  if (!buffers_->all_reduce) buffers_->all_reduce.emplace(*this);
  return *buffers_->all_reduce;
}

}  // namespace sparsewire
