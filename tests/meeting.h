// A barrier of threads that does not wait for ever: neither for a thread that failed, nor for one that hangs.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "patience.h"
#include "sparsewire/transport.h"

namespace sparsewire {

class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  // Throws when somebody has given up, or when not all come within the limit.
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    const int round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    const auto is_over = [&] { return round_ != round || given_up_; };
    const bool in_time = changed_.wait_for(lock, patient(std::chrono::seconds(60)), is_over);
    if (round_ != round) return;
    throw std::runtime_error(in_time ? "a thread failed before it came to the meeting" : "not all came to the meeting");
  }

  // The thread that fails in `body` gives up.
  std::function<void(Transport&)> watched(std::function<void(Transport&)> body) {
    return [this, body = std::move(body)](Transport& transport) {
      try {
        body(transport);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        given_up_ = true;
        changed_.notify_all();
        throw;
      }
    };
  }

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  int round_ = 0;
  bool given_up_ = false;
};

}  // namespace sparsewire
