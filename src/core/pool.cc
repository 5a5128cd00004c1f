#include "sparsewire/pool.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"

namespace sparsewire {

namespace {

// How often a thread asks for work, and lets others run, before it sleeps: about a hundred microseconds. Between the
// stages of a step one thread alone works for up to fifty, and waking sixteen threads takes longer.
constexpr int kPatience = 300;
// The same for the caller, who knows that the others are at work.
constexpr int kCallersPatience = 3000;

// Each thread wakes so many others. With sixteen threads it took longer if each woke only two or four (docs/decisions,
// 19), and one alone would be slow with many more.
constexpr int kWakes = 16;

template <class IsOver>
bool wait_awake(int patience, IsOver is_over) {
  for (int i = 0; i < patience; ++i) {
    if (is_over()) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

struct Pool::Threads {
  // Of one thread, on a cache line of its own.
  struct alignas(64) ThreadState {
    std::atomic<std::uint32_t> is_asleep = 0;
  };

  std::atomic<std::uint64_t> round = 0;  // counts calls of run_each; a thread works once per round
  std::atomic<std::uint32_t> running = 0;
  std::atomic<bool> stop = false;
  Each each = nullptr;
  void* context = nullptr;
  std::vector<ThreadState> states;  // of all threads; that of the caller, the first, is not used
  std::vector<std::jthread> others;
  const pid_t process = ::getpid();

  explicit Threads(int threads) : states(static_cast<std::size_t>(threads)) {}

  // After a fork() the child has none of the other threads.
  bool are_elsewhere() const { return !others.empty() && ::getpid() != process; }

  // Sleeps until wake_next() of another thread. May return earlier. If the round changes after the state says that
  // this thread sleeps, the other thread sees that; if before, this one sees the new round.
  void sleep(int thread, std::uint64_t seen) {
    std::atomic<std::uint32_t>& is_asleep = states[static_cast<std::size_t>(thread)].is_asleep;
    is_asleep = 1;
    if (round != seen) {
      is_asleep = 0;
    } else {
      is_asleep.wait(1);
    }
  }

  // Wakes those threads that wait for this one, if they sleep. To be called once per round by each thread.
  void wake_next(int thread) {
    const auto first = static_cast<std::size_t>(thread) * kWakes + 1;
    for (std::size_t next = first; next < first + kWakes && next < states.size(); ++next) {
      if (states[next].is_asleep.exchange(0) == 1) states[next].is_asleep.notify_one();
    }
  }

  void serve(int thread) {
    const StandardFloatMode mode;  // a new thread has the mode of the one that made it
    for (std::uint64_t seen = 0;;) {
      const auto has_work = [&] { return round != seen; };
      while (!wait_awake(kPatience, has_work)) sleep(thread, seen);
      seen = round;
      wake_next(thread);
      if (stop) return;
      each(context, thread);
      if (--running == 0) running.notify_one();
    }
  }

  void begin_round() {
    ++round;
    wake_next(0);
  }

  void end() {
    stop = true;
    begin_round();
    others.clear();  // joins
  }
};

Pool::Pool(int threads) {
  if (threads < 1 || threads > 1024) throw UsageError(fmt::format("[pool] threads={} is not in [1, 1024]", threads));
  threads_ = std::make_unique<Threads>(threads);
  threads_->others.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      threads_->others.emplace_back([all = threads_.get(), thread] { all->serve(thread); });
    }
  } catch (...) {  // the system has no more threads: end those that were started, which would wait forever
    threads_->end();
    throw;
  }
}

Pool::~Pool() {
  if (threads_->are_elsewhere()) {
    static_cast<void>(threads_.release());  // there is nothing to join, and nothing that may be touched
  } else {
    threads_->end();
  }
}

int Pool::size() const noexcept { return static_cast<int>(threads_->others.size()) + 1; }

void Pool::run_each(Each each, void* context) {
  Threads& all = *threads_;
  if (all.others.empty()) {
    each(context, 0);
    return;
  }
  if (all.are_elsewhere()) {
    for (int thread = 0; thread < size(); ++thread) each(context, thread);
    return;
  }
  all.each = each;
  all.context = context;
  all.running = static_cast<std::uint32_t>(all.others.size());
  all.begin_round();
  each(context, 0);
  if (wait_awake(kCallersPatience, [&] { return all.running == 0; })) return;
  for (std::uint32_t left = all.running; left != 0; left = all.running) all.running.wait(left);
}

}  // namespace sparsewire
