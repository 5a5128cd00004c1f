// Ranks as threads of one process: a message is a view of the sender's bytes, copied by the receiver.
#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/arguments.h"
#include "transport/deadline.h"
#include "transport/sum.h"

namespace sparsewire {
namespace {

using Clock = std::chrono::steady_clock;

// A message from one rank to another.
struct Slot {
  enum class State : std::uint8_t { empty, full, being_read };
  State state = State::empty;
  std::span<const std::byte> bytes;
};

}  // namespace

struct ThreadGroup::Shared {
  class Rank;

  Shared(int count, std::chrono::milliseconds limit)
      : size(count),
        deadline(limit),
        slots(static_cast<std::size_t>(count * count)),
        changed(static_cast<std::size_t>(count)),
        reduced(static_cast<std::size_t>(count)),
        waits_for(static_cast<std::size_t>(count), -1),
        ended(static_cast<std::size_t>(count)) {}

  const int size;
  const std::chrono::milliseconds deadline;
  std::mutex mutex;
  std::vector<Slot> slots;                       // [from * size + to]
  std::vector<std::condition_variable> changed;  // one for each rank: one of its slots changed
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::span<std::byte>> reduced;  // what each rank passed to all_reduce_sum
  int readers = 0;                            // ranks that read from it
  std::condition_variable readers_left;

  std::vector<int> waits_for;  // the rank that each rank waits for, or -1
  std::vector<bool> ended;     // ranks that make no more calls, without an error

  // The first failure; every later call throws it again.
  std::optional<int> lost;
  std::string why;

  Slot& slot(int from, int to) { return slots[static_cast<std::size_t>(from * size + to)]; }
  std::condition_variable& changed_for(int rank) { return changed[static_cast<std::size_t>(rank)]; }

  // The last rank of the chain "A waits for B waits for C": a rank that waits for another one is not late itself.
  int find_late_rank(int missing) const {
    int late = missing;
    for (int hops = 0; hops < size; ++hops) {
      const int next = waits_for[static_cast<std::size_t>(late)];
      if (next == -1) return late;
      late = next;
    }
    return missing;  // a cycle: one of them made another call than the others
  }

  void fail(int rank, std::string reason) {
    if (lost) return;
    lost = rank;
    why = std::move(reason);
    for (int r = 0; r < size; ++r) changed_for(r).notify_all();
  }
};

class ThreadGroup::Shared::Rank final : public Transport {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return shared_.size; }

  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    check_messages(rank_, size(), out, in);
    const Clock::time_point end = Clock::now() + shared_.deadline;
    std::unique_lock lock(shared_.mutex);
    if (shared_.lost) throw TransportError(shared_.why, *shared_.lost);
    for (const Outgoing& message : out) {
      Slot& slot = shared_.slot(rank_, message.rank);
      slot.bytes = message.bytes;
      slot.state = Slot::State::full;
      shared_.changed_for(message.rank).notify_one();
    }
    try {
      // Not in order of arrival, because an error names the lowest rank that is missing.
      for (const Incoming& message : in) receive(lock, message, end);
      for (const Outgoing& message : out) {
        wait(lock, end, message.rank, [&] { return shared_.slot(rank_, message.rank).state == Slot::State::empty; });
      }
    } catch (...) {
      withdraw(lock, out);
      throw;
    }
  }

  void all_reduce_sum(std::span<float> numbers) override { reduce(numbers); }

  void all_reduce_sum_bf16(std::span<std::uint16_t> numbers) override { reduce(numbers); }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Clock::time_point end, int other, Condition condition) {
    const auto has_ended = [&] { return shared_.ended[static_cast<std::size_t>(other)]; };
    const auto is_over = [&] { return shared_.lost.has_value() || condition() || has_ended(); };
    int& mine = shared_.waits_for[static_cast<std::size_t>(rank_)];
    mine = other;
    const bool in_time = shared_.changed_for(rank_).wait_until(lock, end, is_over);
    const int late = shared_.find_late_rank(other);
    mine = -1;
    if (condition()) return;
    if (!in_time) {
      shared_.fail(late, fmt::format("rank {} did not respond within {} ms; rank {} was waiting for it", late,
                                     shared_.deadline.count(), rank_));
    } else if (has_ended()) {
      shared_.fail(other, fmt::format("rank {} has ended; rank {} was waiting for it", other, rank_));
    }
    throw TransportError(shared_.why, *shared_.lost);
  }

  void receive(std::unique_lock<std::mutex>& lock, const Incoming& message, Clock::time_point end) {
    Slot& slot = shared_.slot(message.rank, rank_);
    wait(lock, end, message.rank, [&] { return slot.state == Slot::State::full; });
    slot.state = Slot::State::being_read;
    lock.unlock();
    std::exception_ptr failure;
    try {
      message.bytes->assign(slot.bytes.begin(), slot.bytes.end());
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.state = Slot::State::empty;
    shared_.changed_for(message.rank).notify_one();
    if (failure) std::rethrow_exception(failure);
  }

  // After a failure: the caller may free the bytes, so no rank may read them.
  void withdraw(std::unique_lock<std::mutex>& lock, std::span<const Outgoing> out) {
    for (const Outgoing& message : out) {
      Slot& slot = shared_.slot(rank_, message.rank);
      shared_.changed_for(rank_).wait(lock, [&] { return slot.state != Slot::State::being_read; });
      slot.state = Slot::State::empty;
    }
  }

  // Calls `read`, which reads the numbers of other ranks. No rank leaves `reduce` meanwhile, so that they stay valid.
  template <class Read>
  void read(Read read) {
    {
      const std::lock_guard lock(shared_.mutex);
      if (shared_.lost) throw TransportError(shared_.why, *shared_.lost);
      ++shared_.readers;
    }
    read();
    const std::lock_guard lock(shared_.mutex);
    if (--shared_.readers == 0) shared_.readers_left.notify_all();
  }

  template <class Number>
  void reduce(std::span<Number> numbers) {
    try {
      reduce_with_others(numbers);
      reduced() = {};
    } catch (...) {
      std::unique_lock lock(shared_.mutex);
      shared_.readers_left.wait(lock, [&] { return shared_.readers == 0; });
      reduced() = {};
      throw;
    }
  }

  // What this rank passed to all_reduce_sum; the others read it.
  std::span<std::byte>& reduced() { return shared_.reduced[static_cast<std::size_t>(rank_)]; }

  // Every rank sums one part over all ranks, in rank order and in place; then it copies the other parts.
  template <class Number>
  void reduce_with_others(std::span<Number> numbers) {
    const auto bytes = std::as_writable_bytes(numbers);
    const std::size_t size_in_bytes = bytes.size();
    reduced() = bytes;
    all_gather(std::as_bytes(std::span(&size_in_bytes, 1)), sizes_);
    check_sizes(size_in_bytes);
    const auto part = [&](int rank) {
      const auto cut = [&](int r) {
        return numbers.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(size()) / 32 * 32;
      };
      const std::size_t begin = cut(rank);
      return std::pair(begin, rank + 1 == size() ? numbers.size() : cut(rank + 1));
    };
    const auto of = [&](int rank) {
      return reinterpret_cast<Number*>(shared_.reduced[static_cast<std::size_t>(rank)].data());
    };
    read([&] {
      const auto [begin, end] = part(rank_);
      const auto theirs = [&, first = begin](int r) { return of(r) + first; };
      sum_in_rank_order(size(), theirs, end - begin, numbers.data() + begin);
    });
    barrier();
    read([&] {
      for (int r = 0; r < size(); ++r) {
        const auto [first, last] = part(r);
        if (r != rank_) std::copy(of(r) + first, of(r) + last, numbers.data() + first);
      }
    });
    barrier();
  }

  // Before any rank reads the numbers of another one. If a size differs, all ranks fail.
  void check_sizes(std::size_t mine) {
    for (std::size_t r = 0; r < sizes_.size(); ++r) {
      std::size_t theirs = 0;
      if (sizes_[r].size() == sizeof theirs) std::memcpy(&theirs, sizes_[r].data(), sizeof theirs);
      if (theirs == mine) continue;
      const std::lock_guard lock(shared_.mutex);
      shared_.fail(static_cast<int>(r),
                   fmt::format("rank {} called all_reduce_sum with {} bytes, rank {} with {}", r, theirs, rank_, mine));
      throw TransportError(shared_.why, *shared_.lost);
    }
  }

  Shared& shared_;
  const int rank_;
  std::vector<std::vector<std::byte>> sizes_;  // of what all ranks passed to all_reduce_sum, in bytes
};

int checked_rank(int rank, int size) {
  if (rank < 0 || rank >= size) throw UsageError(fmt::format("[threads] rank {} is not in [0, {})", rank, size));
  return rank;
}

ThreadGroup::ThreadGroup(int size, std::chrono::milliseconds deadline) {
  if (size < 1 || size > 1024) throw UsageError(fmt::format("[threads] {} workers are not in [1, 1024]", size));
  check_deadline(deadline);
  shared_ = std::make_unique<Shared>(size, deadline);
  for (int r = 0; r < size; ++r) shared_->ranks.push_back(std::make_unique<Shared::Rank>(*shared_, r));
}

ThreadGroup::~ThreadGroup() = default;

Transport& ThreadGroup::at(int rank) {
  return *shared_->ranks[static_cast<std::size_t>(checked_rank(rank, shared_->size))];
}

void ThreadGroup::mark_lost(int rank, const char* reason) {
  const std::lock_guard lock(shared_->mutex);
  shared_->fail(checked_rank(rank, shared_->size), fmt::format("rank {} failed: {}", rank, reason));
}

void ThreadGroup::mark_done(int rank) {
  const std::lock_guard lock(shared_->mutex);
  shared_->ended[static_cast<std::size_t>(checked_rank(rank, shared_->size))] = true;
  for (std::condition_variable& changed : shared_->changed) changed.notify_all();
}

void run_on_threads(int size, const std::function<void(Transport&)>& body, std::chrono::milliseconds deadline) {
  ThreadGroup group(size, deadline);
  std::mutex mutex;
  std::exception_ptr first;
  const auto failed = [&](int rank, const char* reason) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    group.mark_lost(rank, reason);
  };
  const auto run = [&](int rank) {
    try {
      body(group.at(rank));
      group.mark_done(rank);
    } catch (const std::exception& error) {
      failed(rank, error.what());
    } catch (...) {
      failed(rank, "it threw something that is no std::exception");
    }
  };
  {
    std::vector<std::jthread> threads;
    int rank = 1;
    try {
      for (; rank < size; ++rank) threads.emplace_back(run, rank);
    } catch (const std::exception& error) {
      failed(rank, error.what());  // the system has no more threads
    }
    run(0);
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace sparsewire
