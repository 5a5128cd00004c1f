// The checked calls, and the collectives made of messages between two ranks.
#include "sparsewire/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "sparsewire/errors.h"
#include "transport/arguments.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

// all_reduce_sum sums so many bytes at a time: enough to make the cost of two rounds of messages negligible, few enough
// to keep the copies small.
constexpr std::size_t kReducedBytes = std::size_t{16} << 20;

}  // namespace

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
  std::vector<std::vector<std::byte>> empty;     // of barrier
  std::vector<std::vector<std::byte>> counts;    // of the entries that each rank gave to all_reduce_sum
  std::vector<std::vector<std::byte>> received;  // from each rank in all_reduce_sum

  // Adds a message to and one from the rank.
  void add(int rank, std::span<const std::byte> sent, std::vector<std::byte>& bytes, std::size_t size = kUnknownSize) {
    out.push_back({rank, sent});
    in.push_back({rank, &bytes, size});
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
    failure_->set(error);
    fail(error.what());
    throw TransportError(error);
  }
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

// Every rank receives a slice of a block from all others, sums it in rank order, and sends the sum to all. No algorithm
// needs fewer bytes, and the messages show which rank is missing.
void Transport::do_all_reduce_sum(WritableNumbers numbers) {
  check_same_numbers(numbers);
  if (numbers.type == NumberType::bf16) {
    reduce(std::span(static_cast<std::uint16_t*>(numbers.data), numbers.size));
  } else {
    reduce(std::span(static_cast<float*>(numbers.data), numbers.size));
  }
}

// Collective, before any numbers are sent: all ranks see a difference, and throw the same error.
void Transport::check_same_numbers(const WritableNumbers& numbers) {
  const std::array<std::uint64_t, 2> mine = {numbers.size, static_cast<std::uint64_t>(numbers.type)};
  auto& all = buffers_->counts;
  all_gather(std::as_bytes(std::span(mine)), all);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw TransportError(
        fmt::format("rank {} called all_reduce_sum with another number of entries, or another type, than rank 0", r),
        static_cast<int>(r));
  }
}

template <class Number>
void Transport::reduce(std::span<Number> numbers) {
  while (!numbers.empty()) {
    const std::size_t count = std::min(kReducedBytes / sizeof(Number), numbers.size());
    reduce_block(numbers.first(count));
    numbers = numbers.subspan(count);
  }
}

template <class Number>
void Transport::reduce_block(std::span<Number> numbers) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto slice = [&](std::size_t r) {
    const std::size_t begin = numbers.size() * r / ranks;
    return numbers.subspan(begin, numbers.size() * (r + 1) / ranks - begin);
  };
  const std::span<Number> own = slice(static_cast<std::size_t>(rank()));
  auto& received = buffers_->received;
  received.resize(ranks);
  const auto numbers_of = [&](std::size_t r) { return reinterpret_cast<const Number*>(received[r].data()); };

  buffers_->clear();
  for (std::size_t r = 0; r < ranks; ++r) {
    buffers_->add(static_cast<int>(r), std::as_bytes(slice(r)), received[r], own.size_bytes());
  }
  send_receive(buffers_->out, buffers_->in);
  sum_in_rank_order(
      size(), [&](int r) { return numbers_of(static_cast<std::size_t>(r)); }, own.size(), own.data());

  buffers_->clear();
  for (std::size_t r = 0; r < ranks; ++r) {
    if (static_cast<int>(r) == rank()) continue;
    buffers_->add(static_cast<int>(r), std::as_bytes(own), received[r], slice(r).size_bytes());
  }
  send_receive(buffers_->out, buffers_->in);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (static_cast<int>(r) != rank()) std::copy_n(numbers_of(r), slice(r).size(), slice(r).data());
  }
}

}  // namespace sparsewire
