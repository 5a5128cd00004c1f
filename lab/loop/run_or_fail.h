// An error on one rank becomes the same error on all: no rank waits for one that has given up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "sparsewire/transport.h"

namespace sparsewire::train {

// Thrown on all ranks, with the same text.
class SharedError : public std::runtime_error {
 public:
  SharedError(const std::string& what, bool is_usage, std::optional<std::uint64_t> diverged_at = {})
      : std::runtime_error(what), is_usage_(is_usage), diverged_at_(diverged_at) {}

  bool is_usage() const noexcept { return is_usage_; }  // wrong options or input; otherwise the run failed
  // If it failed because a number was not finite: the step.
  std::optional<std::uint64_t> diverged_at() const noexcept { return diverged_at_; }

 private:
  bool is_usage_;
  std::optional<std::uint64_t> diverged_at_;
};

// Runs `work`, and waits until all ranks have done so. If it threw on some of them, all throw a SharedError with the
// message of the lowest of those ranks, after its number unless it is 0. Collective; `work` itself must not be. Throws
// TransportError.
void run_or_fail_on_all(Transport& transport, const std::function<void()>& work);

}  // namespace sparsewire::train
