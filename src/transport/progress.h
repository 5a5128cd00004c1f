// Which rank waits for which, and when each of them last made progress: tells a rank that is slow, or that waits for
// another one, from a rank that is lost.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace sparsewire {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(int size) : ranks_(static_cast<std::size_t>(size)) {}

  // The rank made progress at this time: it entered a call, or sent or received a part of a message.
  void note(int rank, Clock::time_point time) { at(rank).last = std::max(at(rank).last, time); }
  // The time from `begin` to `now` is nobody's silence.
  void leave_out(Clock::time_point begin, Clock::time_point now) {
    for (Rank& rank : ranks_) rank.last = std::min(rank.last + (now - begin), now);
  }
  Clock::time_point last(int rank) const { return ranks_[static_cast<std::size_t>(rank)].last; }

  // The ranks that it waits for; empty if it is not in a call.
  std::vector<int>& missing(int rank) { return at(rank).missing; }

  // The last progress of the rank and of all that it waits for, directly or through others.
  Clock::time_point last_of_all(int rank) {
    Clock::time_point last = this->last(rank);
    visit(rank, [&](int other) { last = std::max(last, this->last(other)); });
    return last;
  }

  // The first rank that `rank` waits for, directly or through others, and that waits for nobody. If they wait for each
  // other, because one of them made another call, the first that `rank` waits for. REQUIRES: it waits for one.
  int find_late_rank(int rank) {
    int late = -1;
    visit(rank, [&](int other) {
      if (late == -1 && missing(other).empty()) late = other;
    });
    return late == -1 ? missing(rank).front() : late;
  }

 private:
  struct Rank {
    Clock::time_point last;
    std::vector<int> missing;
    bool is_visited = false;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // Calls visitor(r) for `start` and all ranks that it waits for, directly or through others: depth first, so that the
  // lowest rank that is missing comes first.
  template <class Visitor>
  void visit(int start, Visitor visitor) {
    for (Rank& rank : ranks_) rank.is_visited = false;
    stack_.assign(1, start);
    while (!stack_.empty()) {
      const int rank = stack_.back();
      stack_.pop_back();
      if (at(rank).is_visited) continue;
      at(rank).is_visited = true;
      visitor(rank);
      const std::vector<int>& next = missing(rank);
      stack_.insert(stack_.end(), next.rbegin(), next.rend());
    }
  }

  std::vector<Rank> ranks_;
  std::vector<int> stack_;
};

}  // namespace sparsewire
