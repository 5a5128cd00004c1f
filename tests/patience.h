// The limits of tests, in one place. They end what hangs and say nothing about speed, so they are generous. On a
// machine that needs more, SPARSEWIRE_TEST_PATIENCE=3 makes all of them three times as long. patience.py is the same
// for Python.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace sparsewire {

inline std::chrono::milliseconds patient(std::chrono::milliseconds limit) {
  const char* const value = std::getenv("SPARSEWIRE_TEST_PATIENCE");
  const double factor = value == nullptr ? 1.0 : std::max(std::strtod(value, nullptr), 0.1);
  return std::chrono::milliseconds(
      static_cast<std::chrono::milliseconds::rep>(static_cast<double>(limit.count()) * factor));
}

// A deadline that passes in the test, between processes, in real time: a busy machine must not use it up.
inline std::chrono::milliseconds deadline_that_passes() { return patient(std::chrono::seconds(5)); }

}  // namespace sparsewire
