// What a training failed with, as text to compare.
#pragma once

#include <functional>
#include <string>

#include "loop/run_or_fail.h"

namespace sparsewire::train {

inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const SharedError& error) {
    return (error.is_usage() ? "usage: " : "failed: ") + std::string(error.what());
  }
  return "none";
}

}  // namespace sparsewire::train
