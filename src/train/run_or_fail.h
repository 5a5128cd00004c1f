// What fails on one rank fails on all, alike: nobody waits for a rank that is gone, and one message says why.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "sparsewire/transport.h"

namespace sparsewire::train {

// Thrown on all ranks, the same.
class SharedError : public std::runtime_error {
 public:
  SharedError(const std::string& what, bool is_usage) : std::runtime_error(what), is_usage_(is_usage) {}

  bool is_usage() const noexcept { return is_usage_; }  // what was given cannot work; otherwise the run failed

 private:
  bool is_usage_;
};

// Runs `work` and waits for all ranks to have done so: a barrier as well. If one of them failed, all throw a
// SharedError with what the lowest of those had to say. Collective; `work` must not be. Throws TransportError.
void run_or_fail_on_all(Transport& transport, const std::function<void()>& work);

}  // namespace sparsewire::train
