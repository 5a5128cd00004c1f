// Time for ranks on threads that passes only when all of them wait: then it jumps to the earliest limit. So a rank that
// gets no processor for a while loses nothing by it, and a test of an hour's silence takes a millisecond.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <vector>

#include "sparsewire/transport.h"
#include "transport/threads/rank_clock.h"

namespace sparsewire {

class VirtualTime final : public RankClock {
 public:
  explicit VirtualTime(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  Time now() override { return now_; }

  void wait_until(std::unique_lock<std::mutex>& lock, int rank, Time until) override {
    Rank& mine = at(rank);
    mine.limit = until;
    jump_if_all_wait();
    mine.woken.wait(lock, [&] { return !mine.limit; });
    if (are_stuck_) throw std::logic_error("all ranks that are left wait for each other, for ever");
  }

  void wake(int rank) override {
    at(rank).limit.reset();
    at(rank).woken.notify_one();
  }

  void leave(int rank) override {
    at(rank).is_live = false;
    jump_if_all_wait();
  }

  // ---- For the ranks themselves ----

  void sleep(int rank, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    const Time end = now_ + time;
    while (now_ < end) wait_until(lock, rank, end);
  }

  // A barrier beside the transport. If a rank fails before it comes there, the others fail, too.
  void meet(int rank) {
    std::unique_lock lock(mutex);
    const int mine = meetings_;
    come();
    while (meetings_ == mine) wait_until(lock, rank, Time::max());
  }

  // To the barrier, without waiting for the others.
  void arrive() {
    const std::lock_guard lock(mutex);
    come();
  }

  // As if the process had been suspended: nobody has looked meanwhile.
  void suspend(std::chrono::milliseconds time) {
    const std::lock_guard lock(mutex);
    now_ += time;
  }

 private:
  struct Rank {
    std::condition_variable woken;
    std::optional<Time> limit;  // while it waits
    bool is_live = true;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void come() {
    if (++met_ < ranks_.size()) return;
    met_ = 0;
    ++meetings_;
    wake_all();
  }

  void wake_all() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) wake(static_cast<int>(r));
  }

  void jump_if_all_wait() {
    bool is_anybody_live = false;
    Time first = Time::max();
    for (const Rank& rank : ranks_) {
      if (!rank.is_live) continue;
      if (!rank.limit) return;
      is_anybody_live = true;
      first = std::min(first, *rank.limit);
    }
    if (!is_anybody_live) return;
    if (first == Time::max()) {
      are_stuck_ = true;
      return wake_all();
    }
    now_ = std::max(now_, first);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].limit && *ranks_[r].limit <= now_) wake(static_cast<int>(r));
    }
  }

  std::vector<Rank> ranks_;
  Time now_{std::chrono::hours(1)};
  std::size_t met_ = 0;
  int meetings_ = 0;
  bool are_stuck_ = false;
};

// What the thread that calls is, if it is a rank on virtual time.
struct VirtualRank {
  VirtualTime* time = nullptr;
  int rank = 0;

  void meet() const { time->meet(rank); }
  void arrive() const { time->arrive(); }
  void sleep(std::chrono::milliseconds duration) const { time->sleep(rank, duration); }

  static VirtualRank& own() {
    static thread_local VirtualRank own;
    return own;
  }
};

inline void run_on_virtual_time(int ranks, const std::function<void(Transport&)>& body,
                                std::chrono::milliseconds deadline) {
  VirtualTime time(ranks);
  const auto on_virtual_time = [&](Transport& transport) {
    VirtualRank::own() = {&time, transport.rank()};
    struct End {
      ~End() { VirtualRank::own() = {}; }
    } const end;  // rank 0 is the thread of the test
    body(transport);
  };
  run_on_threads(ranks, on_virtual_time, deadline, time);
}

}  // namespace sparsewire
