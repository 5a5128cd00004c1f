#include "sparsewire/pool.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/standard_float_mode.h"
#include "sparsewire/errors.h"

namespace sparsewire {

namespace {

// How often a thread asks for work, and lets others run, before it sleeps: about a hundred microseconds. Between the
// stages of a step one thread alone works for up to fifty, and waking sixteen threads takes longer.
constexpr int kPatience = 300;

template <class IsOver>
bool wait_awake(IsOver is_over) {
  for (int i = 0; i < kPatience; ++i) {
    if (is_over()) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

struct Pool::Threads {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable finish;
  std::atomic<std::uint64_t> round = 0;  // counts calls of run_each; a thread works once per round
  std::atomic<int> running = 0;
  std::atomic<bool> stop = false;
  Each each = nullptr;
  void* context = nullptr;
  std::vector<std::jthread> others;
  const pid_t process = ::getpid();

  // After a fork() the child has none of the other threads, and the mutex may be locked by one of them.
  bool are_elsewhere() const { return !others.empty() && ::getpid() != process; }

  void serve(int thread) {
    const StandardFloatMode mode;  // a new thread has the mode of the one that made it
    for (std::uint64_t seen = 0;;) {
      const auto has_work = [&] { return stop || round != seen; };
      if (!wait_awake(has_work)) {
        std::unique_lock lock(mutex);
        start.wait(lock, has_work);
      }
      if (stop) return;
      seen = round;
      each(context, thread);
      if (--running > 0) continue;
      const std::lock_guard lock(mutex);  // the caller is awake, or sleeps already
      finish.notify_one();
    }
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    start.notify_all();
    others.clear();  // joins
  }
};

Pool::Pool(int threads) : threads_(std::make_unique<Threads>()) {
  if (threads < 1 || threads > 1024) throw UsageError(fmt::format("[pool] threads={} is not in [1, 1024]", threads));
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
  all.running = static_cast<int>(all.others.size());
  {
    const std::lock_guard lock(all.mutex);
    ++all.round;
  }
  all.start.notify_all();
  each(context, 0);
  const auto is_over = [&] { return all.running == 0; };
  if (wait_awake(is_over)) return;
  std::unique_lock lock(all.mutex);
  all.finish.wait(lock, is_over);
}

}  // namespace sparsewire
