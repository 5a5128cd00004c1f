// An error on one rank becomes the same error on all: no rank waits for one that has given up.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "sparsewire/transport.h"

namespace sparsewire::train {

// Thrown on all ranks, with the same text.
class SharedError : public std::runtime_error {
 public:
  SharedError(const std::string& what, bool is_usage) : std::runtime_error(what), is_usage_(is_usage) {}

  bool is_usage() const noexcept { return is_usage_; }  // wrong options or input; otherwise the run failed

 private:
  bool is_usage_;
};

// Runs `work`, and waits until all ranks have done so. If it threw on some of them, all throw a SharedError with the
// message of the lowest of those ranks, after its number unless it is 0. Collective; `work` itself must not be. Throws
// TransportError.
void run_or_fail_on_all(Transport& transport, const std::function<void()>& work);

}  // namespace sparsewire::train
