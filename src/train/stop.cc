#include "train/stop.h"

#include <atomic>
#include <csignal>

#include "files/replace.h"

namespace sparsewire::train {
namespace {

std::atomic<bool> wished = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler sets it");

void on_signal(int signal) {
  if (!wished.exchange(true)) return;
  files::remove_unfinished();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void catch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
}

bool is_stop_wished() noexcept { return wished; }

}  // namespace sparsewire::train
