// Where the ranks of a ThreadGroup wait for each other, and the time by which they are late. Tests bring a time of
// their own (tests/transport/virtual_time.h), so that a busy machine decides nothing.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

#include "sparsewire/transport.h"

namespace sparsewire {

class RankClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~RankClock() = default;

  // Of the group. REQUIRES, of all functions below: it is locked.
  std::mutex mutex;

  virtual Time now() = 0;
  // Returns when somebody wakes this rank, when the time has come, or earlier. Time::max(): only when it is woken.
  virtual void wait_until(std::unique_lock<std::mutex>& lock, int rank, Time until) = 0;
  virtual void wake(int rank) = 0;
  // The rank waits no more.
  virtual void leave(int rank) = 0;
};

// run_on_threads() by this clock, for tests.
void run_on_threads(int size, const std::function<void(Transport&)>& body, std::chrono::milliseconds deadline,
                    RankClock& clock);

}  // namespace sparsewire
