// What a UsageError said, as text to compare; empty if there was none.
#pragma once

#include <string>

#include "sparsewire/errors.h"

namespace sparsewire {

template <class Work>
std::string usage_error_of(Work work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace sparsewire
