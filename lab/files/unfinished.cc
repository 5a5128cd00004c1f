#include "files/unfinished.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace sparsewire::files {
namespace {

// Names are kept where a signal handler can read them: a flag says which are in use.
struct Unfinished {
  std::array<char, 4096> name;
  std::atomic<bool> used = false;
};
std::array<Unfinished, 16> unfinished;  // more at a time are not remembered
std::mutex unfinished_mutex;            // for those who change it; the handler only reads

}  // namespace

void remember_unfinished(const std::string& name) {
  const std::lock_guard lock(unfinished_mutex);
  for (Unfinished& one : unfinished) {
    if (one.used || name.size() >= one.name.size()) continue;
    std::copy_n(name.c_str(), name.size() + 1, one.name.data());
    one.used = true;
    return;
  }
}

void forget_unfinished(const std::string& name) {
  const std::lock_guard lock(unfinished_mutex);
  for (Unfinished& one : unfinished) {
    if (one.used && name == one.name.data()) one.used = false;
  }
}

void remove_unfinished() noexcept {
  for (const Unfinished& one : unfinished) {
    if (one.used) ::unlink(one.name.data());
  }
}

}  // namespace sparsewire::files
