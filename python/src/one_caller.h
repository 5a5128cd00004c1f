// Our objects take one caller at a time. With the GIL released two Python threads could be in one object, so each call
// goes through this door; a second caller gets a UsageError instead of undefined behaviour.
#pragma once

#include <unistd.h>

#include <atomic>
#include <string>

#include "sparsewire/errors.h"

namespace sparsewire::python {

class OneCaller {
 public:
  // `has_threads`: the object has a thread pool, which a child process after a fork does not have.
  explicit OneCaller(const char* what, bool has_threads = false) : what_(what), has_threads_(has_threads) {}

  class Entry {
   public:
    explicit Entry(OneCaller& door) : door_(door) {
      if (door.has_threads_ && getpid() != door.process_) {
        throw UsageError("[" + door.what_ +
                         "] its threads are in the process that made it: make a new one after a fork");
      }
      if (door.is_busy_.exchange(true)) {
        throw UsageError("[" + door.what_ + "] is used by another thread, or by itself: one caller at a time");
      }
    }
    ~Entry() { door_.is_busy_ = false; }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    OneCaller& door_;
  };

  void set_has_threads(bool has_threads) {
    has_threads_ = has_threads;
    process_ = getpid();
  }

 private:
  std::string what_;
  bool has_threads_;
  pid_t process_ = getpid();
  std::atomic<bool> is_busy_ = false;
};

}  // namespace sparsewire::python
