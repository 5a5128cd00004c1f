#include "train/stop.h"

#include <atomic>
#include <csignal>

#include "files/replace.h"

namespace sparsewire::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> wished = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler sets it");

void on_signal(int signal) {
  if (!wished.exchange(true)) return;
  files::remove_unfinished();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

StopSignals::StopSignals() {
  for (int i = 0; i < 2; ++i) before_[i] = std::signal(kSignals[i], on_signal);
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 2; ++i) std::signal(kSignals[i], before_[i]);
}

bool is_stop_wished() noexcept { return wished; }

}  // namespace sparsewire::train
