#include "loop/stop.h"

#include <atomic>
#include <csignal>

#include "files/unfinished.h"

namespace sparsewire::train {
namespace {

constexpr int kSignals[StopSignals::kCount] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void on_signal(int signal) {
  if (!requested.exchange(true)) return;
  files::remove_unfinished();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

StopSignals::StopSignals() {
  for (int i = 0; i < kCount; ++i) {
    before_[i] = std::signal(kSignals[i], on_signal);
    if (before_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);  // nohup
  }
}

StopSignals::~StopSignals() {
  for (int i = 0; i < kCount; ++i) std::signal(kSignals[i], before_[i]);
}

bool stop_requested() noexcept { return requested; }

}  // namespace sparsewire::train
