// For engines whose ranks share no memory: when a rank that is in a call tells the others its status, and what it
// concludes from theirs.
//
// A rank that makes progress says so every quarter of the deadline. In its first status it says that it is in a call;
// if a rank waits for it, at once, because that one may have waited for long. Calls shorter than that send nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "transport/deadline.h"
#include "transport/progress.h"

namespace sparsewire {

class Watch {
 public:
  using Clock = Progress::Clock;

  // Ranks are late only after so many polls without progress: a process that got no processor for a while has not
  // looked.
  Watch(int rank, int size, std::chrono::milliseconds deadline, int late_polls)
      : rank_(rank),
        deadline_(deadline),
        late_polls_(late_polls),
        others_(size),
        waits_for_me_(static_cast<std::size_t>(size)) {}

  void begin_call(Clock::time_point now) {
    note_progress(now);
    last_status_ = now;
    sent_status_ = false;
  }

  // This rank sent or received a part of a message.
  void note_progress(Clock::time_point now) {
    last_look_ = last_progress_ = now;
    next_check_ = now + deadline_;
    progressed_ = true;
    polls_ = 0;
  }

  bool is_status_due(Clock::time_point now) const {
    const bool is_asked = !sent_status_ && waiting_for_me_ > 0;
    return is_asked || (progressed_ && now >= last_status_ + deadline_ / 4);
  }

  // The status is sent now. Returns how many milliseconds ago the last progress was.
  std::int32_t note_status(Clock::time_point now) {
    last_status_ = now;
    sent_status_ = true;
    progressed_ = false;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_progress_).count();
    return static_cast<std::int32_t>(std::min<std::int64_t>(age, std::numeric_limits<std::int32_t>::max()));
  }

  // In this call: then its end has to be told, too, by a status that waits for nobody.
  bool has_sent_status() const { return sent_status_; }

  // Another rank told its status.
  void read_status(int from, std::int32_t age_ms, std::span<const std::int32_t> missing, Clock::time_point now) {
    others_.note(from, now - std::chrono::milliseconds(age_ms));
    others_.missing(from).assign(missing.begin(), missing.end());
    const bool waits = std::find(missing.begin(), missing.end(), rank_) != missing.end();
    waiting_for_me_ += (waits ? 1 : 0) - (waits_for_me_[static_cast<std::size_t>(from)] ? 1 : 0);
    waits_for_me_[static_cast<std::size_t>(from)] = waits;
  }

  // After a poll without progress: the rank that is late, if all that this rank waits for were silent for the deadline.
  // list_missing(ranks) sets the ranks that it waits for. To be called at least every look_every(deadline).
  template <class ListMissing>
  std::optional<int> find_late_rank(Clock::time_point now, ListMissing list_missing) {
    if (was_suspended(last_look_, now, deadline_)) {
      others_.leave_out(last_look_, now);
      last_progress_ = std::min(last_progress_ + (now - last_look_), now);
      next_check_ = last_progress_ + deadline_;
      polls_ = 0;
    }
    last_look_ = now;
    if (++polls_ < late_polls_ || now < last_progress_ + deadline_) return std::nullopt;
    others_.note(rank_, last_progress_);
    list_missing(others_.missing(rank_));
    next_check_ = others_.last_of_all(rank_) + deadline_;
    if (now < next_check_) return std::nullopt;
    return others_.find_late_rank(rank_);
  }

  // When is_status_due() or find_late_rank() may say something new if nothing happens until then.
  Clock::time_point next_event() const {
    return progressed_ ? std::min(next_check_, last_status_ + deadline_ / 4) : next_check_;
  }

 private:
  const int rank_;
  const std::chrono::milliseconds deadline_;
  const int late_polls_;

  Clock::time_point last_progress_;
  Clock::time_point last_look_;
  Clock::time_point last_status_;  // or the beginning of the call
  Clock::time_point next_check_;
  bool sent_status_ = false;  // in this call
  bool progressed_ = false;   // since the last status
  int polls_ = 0;             // without progress

  Progress others_;                 // what they said
  std::vector<bool> waits_for_me_;  // of each rank: whether it said so
  int waiting_for_me_ = 0;          // how many of them
};

}  // namespace sparsewire
