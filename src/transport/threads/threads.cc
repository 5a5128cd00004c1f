// Ranks as threads of one process: a message is a view of the sender's bytes, copied by the receiver.
#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"
#include "transport/arguments.h"
#include "transport/deadline.h"
#include "transport/progress.h"
#include "transport/sum.h"
#include "transport/threads/rank_clock.h"

namespace sparsewire {
namespace {

using Clock = Progress::Clock;

// A rank that copies or sums says after each so many that it makes progress.
constexpr std::size_t kCopiedBytes = std::size_t{64} << 20;
constexpr std::size_t kSummedNumbers = std::size_t{4} << 20;
// A rank blames another one only after so many looks without progress. On a busy machine it may have got no processor
// for as long as the deadline: then it has not looked, and the other rank may have had none either. Otherwise it looks
// that often before the deadline passes.
constexpr int kLateLooks = 8;

// A message from one rank to another.
struct Slot {
  enum class State : std::uint8_t { empty, full, being_read };
  State state = State::empty;
  std::span<const std::byte> bytes;
};

class SteadyClock final : public RankClock {
 public:
  explicit SteadyClock(int ranks) : woken_(static_cast<std::size_t>(ranks)) {}

  Time now() override { return Clock::now(); }
  void wait_until(std::unique_lock<std::mutex>& lock, int rank, Time until) override {
    if (until == Time::max()) return at(rank).wait(lock);
    at(rank).wait_until(lock, until);
  }
  void wake(int rank) override { at(rank).notify_one(); }
  void leave(int /*rank*/) override {}

 private:
  std::condition_variable& at(int rank) { return woken_[static_cast<std::size_t>(rank)]; }

  std::vector<std::condition_variable> woken_;  // one for each rank
};

}  // namespace

struct ThreadGroup::Shared {
  class Rank;

  Shared(int count, std::chrono::milliseconds limit, RankClock* tests_clock)
      : size(count),
        deadline(limit),
        steady(count),
        clock(tests_clock == nullptr ? steady : *tests_clock),
        mutex(clock.mutex),
        slots(static_cast<std::size_t>(count * count)),
        reduced(static_cast<std::size_t>(count)),
        calls(static_cast<std::size_t>(count)),
        progress(count),
        ended(static_cast<std::size_t>(count)) {}

  const int size;
  const std::chrono::milliseconds deadline;
  SteadyClock steady;
  RankClock& clock;
  std::mutex& mutex;
  std::vector<Slot> slots;  // [from * size + to]
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<void*> reduced;  // what each rank passed to all_reduce_sum
  int readers = 0;             // ranks that read from it
  std::condition_variable readers_left;

  // The messages of the send_receive that a rank is in.
  struct Call {
    bool is_open = false;
    std::span<const Transport::Outgoing> out;
    std::span<const Transport::Incoming> in;
    std::size_t received = 0;  // of `in`
  };
  std::vector<Call> calls;  // one for each rank
  Progress progress;        // who waits for whom: only as of the last find_missing()
  Progress::Clock::time_point left_out_until;
  std::vector<bool> ended;  // ranks that make no more calls, without an error

  // The first failure; every later call throws it again.
  std::optional<int> lost;
  std::string why;

  Slot& slot(int from, int to) { return slots[static_cast<std::size_t>(from * size + to)]; }

  Call& call(int rank) { return calls[static_cast<std::size_t>(rank)]; }

  // Brings `progress` up to date.
  void find_missing() {
    for (int r = 0; r < size; ++r) {
      std::vector<int>& missing = progress.missing(r);
      missing.clear();
      for (const Transport::Incoming& message : call(r).in.subspan(call(r).received)) {
        if (slot(message.rank, r).state == Slot::State::empty) missing.push_back(message.rank);
      }
      for (const Transport::Outgoing& message : call(r).out) {
        if (slot(r, message.rank).state != Slot::State::empty) missing.push_back(message.rank);
      }
    }
  }

  // A rank that waits found out that all were suspended after `last_look`. The others find that out, too.
  void leave_out(Progress::Clock::time_point last_look, Progress::Clock::time_point now) {
    if (last_look < left_out_until) return;
    progress.leave_out(last_look, now);
    left_out_until = now;
  }

  void throw_if_lost() const {
    if (lost) throw TransportError(why, *lost);
  }

  void fail(int rank, std::string reason) {
    if (lost) return;
    lost = rank;
    why = std::move(reason);
    wake_all();
  }

  void wake_all() {
    for (int r = 0; r < size; ++r) clock.wake(r);
  }
};

class ThreadGroup::Shared::Rank final : public Transport {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return shared_.size; }
  bool is_one_process() const noexcept override { return true; }

  void fail(std::string_view cause) noexcept override {
    const std::lock_guard lock(shared_.mutex);
    try {
      shared_.fail(rank_, failure_text(rank_, cause));
    } catch (const std::exception&) {
      shared_.fail(rank_, "no memory");
    }
  }

 protected:
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::unique_lock lock(shared_.mutex);
    shared_.throw_if_lost();
    const Clock::time_point now = shared_.clock.now();
    last_look_ = now;
    shared_.progress.note(rank_, now);
    shared_.call(rank_) = {true, out, in};
    for (const Outgoing& message : out) {
      Slot& slot = shared_.slot(rank_, message.rank);
      slot.bytes = message.bytes;
      slot.state = Slot::State::full;
      // It may wait for the message of another rank first, but something has arrived.
      if (shared_.call(message.rank).is_open) shared_.progress.note(message.rank, now);
      shared_.clock.wake(message.rank);
    }
    try {
      // Not in order of arrival, because an error names the lowest rank that is missing.
      for (const Incoming& message : in) receive(lock, message);
      for (const Outgoing& message : out) {
        wait(lock, message.rank, [&] { return shared_.slot(rank_, message.rank).state == Slot::State::empty; });
      }
    } catch (...) {
      shared_.call(rank_) = {};
      withdraw(lock, out);
      throw;
    }
    shared_.call(rank_) = {};
  }

  void do_all_reduce_sum(WritableNumbers numbers) override {
    if (numbers.type == NumberType::bf16) {
      reduce(numbers, static_cast<std::uint16_t*>(numbers.data));
    } else {
      reduce(numbers, static_cast<float*>(numbers.data));
    }
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, int other, Condition condition) {
    Clock::time_point end = Clock::time_point::min();
    Clock::time_point last = end;
    int looks = 0;  // since there was progress
    while (!condition()) {
      shared_.throw_if_lost();
      if (shared_.ended[static_cast<std::size_t>(other)]) {
        shared_.fail(other, fmt::format("rank {} has ended; rank {} was waiting for it", other, rank_));
        continue;
      }
      const Clock::time_point now = shared_.clock.now();
      if (was_suspended(last_look_, now, shared_.deadline)) shared_.leave_out(last_look_, now);
      last_look_ = now;
      looks = last == shared_.progress.last(rank_) ? looks + 1 : 0;
      last = shared_.progress.last(rank_);
      end = std::max(end, last + shared_.deadline);
      if (now >= end && looks >= kLateLooks) end = end_of_silence(now);
      const Clock::time_point next_look = now + look_every(shared_.deadline);
      shared_.clock.wait_until(lock, rank_, now < end ? std::min(end, next_look) : next_look);
    }
  }

  // When the deadline passes unless there is progress until then. If it has passed, all ranks fail. REQUIRES: the mutex
  // is locked.
  Clock::time_point end_of_silence(Clock::time_point now) {
    shared_.find_missing();
    const Clock::time_point end = shared_.progress.last_of_all(rank_) + shared_.deadline;
    if (now < end) return end;
    const int late = shared_.progress.find_late_rank(rank_);
    shared_.fail(late, fmt::format("rank {} did not respond within {} ms; rank {} was waiting for it", late,
                                   shared_.deadline.count(), rank_));
    shared_.throw_if_lost();
    return end;
  }

  void receive(std::unique_lock<std::mutex>& lock, const Incoming& message) {
    Slot& slot = shared_.slot(message.rank, rank_);
    wait(lock, message.rank, [&] { return slot.state == Slot::State::full; });
    slot.state = Slot::State::being_read;
    lock.unlock();
    std::exception_ptr failure;
    try {
      copy(slot.bytes, *message.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.state = Slot::State::empty;
    ++shared_.call(rank_).received;
    const Clock::time_point now = shared_.clock.now();
    shared_.progress.note(rank_, now);
    shared_.progress.note(message.rank, now);
    shared_.clock.wake(message.rank);
    if (failure) std::rethrow_exception(failure);
  }

  void copy(std::span<const std::byte> from, std::vector<std::byte>& to) {
    to.clear();
    to.reserve(from.size());
    while (from.size() > kCopiedBytes) {
      to.insert(to.end(), from.begin(), from.begin() + kCopiedBytes);
      from = from.subspan(kCopiedBytes);
      note_progress();
    }
    to.insert(to.end(), from.begin(), from.end());
  }

  void note_progress() {
    const std::lock_guard lock(shared_.mutex);
    shared_.progress.note(rank_, shared_.clock.now());
  }

  // After a failure: the caller may free the bytes, so no rank may read them.
  void withdraw(std::unique_lock<std::mutex>& lock, std::span<const Outgoing> out) {
    for (const Outgoing& message : out) {
      Slot& slot = shared_.slot(rank_, message.rank);
      while (slot.state == Slot::State::being_read) shared_.clock.wait_until(lock, rank_, Clock::time_point::max());
      slot.state = Slot::State::empty;
    }
  }

  // Calls `read`, which reads the numbers of other ranks. No rank leaves `reduce` meanwhile, so that they stay valid.
  template <class Read>
  void read(Read read) {
    {
      const std::lock_guard lock(shared_.mutex);
      shared_.throw_if_lost();
      ++shared_.readers;
    }
    read();
    const std::lock_guard lock(shared_.mutex);
    if (--shared_.readers == 0) shared_.readers_left.notify_all();
  }

  template <class Number>
  void reduce(const WritableNumbers& numbers, Number* data) {
    try {
      reduced() = data;
      check_same_numbers(numbers);
      reduce_with_others(std::span(data, numbers.size));
      reduced() = nullptr;
    } catch (...) {
      std::unique_lock lock(shared_.mutex);
      shared_.readers_left.wait(lock, [&] { return shared_.readers == 0; });
      reduced() = nullptr;
      throw;
    }
  }

  // What this rank passed to all_reduce_sum; the others read it.
  void*& reduced() { return shared_.reduced[static_cast<std::size_t>(rank_)]; }

  // Every rank sums one part over all ranks, in rank order and in place; then it copies the other parts.
  template <class Number>
  void reduce_with_others(std::span<Number> numbers) {
    const auto part = [&](int rank) {
      const auto cut = [&](int r) {
        return numbers.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(size()) / 32 * 32;
      };
      const std::size_t begin = cut(rank);
      return std::pair(begin, rank + 1 == size() ? numbers.size() : cut(rank + 1));
    };
    const auto of = [&](int rank) { return static_cast<Number*>(shared_.reduced[static_cast<std::size_t>(rank)]); };
    read([&] {
      const auto [begin, end] = part(rank_);
      for (std::size_t first = begin; first < end; first += kSummedNumbers) {
        const auto theirs = [&](int r) { return of(r) + first; };
        sum_in_rank_order(size(), theirs, std::min(kSummedNumbers, end - first), numbers.data() + first);
        note_progress();
      }
    });
    barrier();
    read([&] {
      for (int r = 0; r < size(); ++r) {
        const auto [first, last] = part(r);
        if (r == rank_) continue;
        std::copy(of(r) + first, of(r) + last, numbers.data() + first);
        note_progress();
      }
    });
    barrier();
  }

  Shared& shared_;
  const int rank_;
  Clock::time_point last_look_;  // at the clock, in this call
};

int checked_rank(int rank, int size) {
  if (rank < 0 || rank >= size) throw UsageError(fmt::format("[threads] rank {} is not in [0, {})", rank, size));
  return rank;
}

ThreadGroup::ThreadGroup(int size, std::chrono::milliseconds deadline) : ThreadGroup(size, deadline, nullptr) {}

ThreadGroup::ThreadGroup(int size, std::chrono::milliseconds deadline, RankClock* clock) {
  if (size < 1 || size > 1024) throw UsageError(fmt::format("[threads] {} workers are not in [1, 1024]", size));
  check_deadline(deadline);
  shared_ = std::make_unique<Shared>(size, deadline, clock);
  for (int r = 0; r < size; ++r) shared_->ranks.push_back(std::make_unique<Shared::Rank>(*shared_, r));
}

ThreadGroup::~ThreadGroup() = default;

Transport& ThreadGroup::at(int rank) {
  return *shared_->ranks[static_cast<std::size_t>(checked_rank(rank, shared_->size))];
}

void ThreadGroup::mark_lost(int rank, const char* reason) { at(rank).fail(reason); }

void ThreadGroup::mark_done(int rank) {
  const std::lock_guard lock(shared_->mutex);
  shared_->ended[static_cast<std::size_t>(checked_rank(rank, shared_->size))] = true;
  shared_->wake_all();
}

void ThreadGroup::run(const std::function<void(Transport&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto failed = [&](int rank, const char* reason) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    mark_lost(rank, reason);
  };
  const auto run = [&](int rank) {
    try {
      body(at(rank));
      mark_done(rank);
    } catch (const std::exception& error) {
      failed(rank, error.what());
    } catch (...) {
      failed(rank, "it threw something that is no std::exception");
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->clock.leave(rank);
  };
  {
    std::vector<std::jthread> threads;
    int rank = 1;
    try {
      for (; rank < shared_->size; ++rank) threads.emplace_back(run, rank);
    } catch (const std::exception& error) {
      failed(rank, error.what());  // the system has no more threads
      const std::lock_guard lock(shared_->mutex);
      for (; rank < shared_->size; ++rank) shared_->clock.leave(rank);
    }
    run(0);
  }
  if (first) std::rethrow_exception(first);
}

void run_on_threads(int size, const std::function<void(Transport&)>& body, std::chrono::milliseconds deadline) {
  ThreadGroup(size, deadline).run(body);
}

void run_on_threads(int size, const std::function<void(Transport&)>& body, std::chrono::milliseconds deadline,
                    RankClock& clock) {
  ThreadGroup(size, deadline, &clock).run(body);
}

}  // namespace sparsewire
