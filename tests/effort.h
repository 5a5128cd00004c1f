// How much a test does: less under sanitizers, which are many times slower, and more with SPARSEWIRE_LONG_TESTS=1, as
// ./test.sh --all sets it.
#pragma once

#include <cstdlib>
#include <string_view>

namespace sparsewire {

// In effort.cc, because the other files of the tests may be compiled once for several builds (CMakeLists.txt).
extern const bool kSlowBuild;    // under a sanitizer
extern const bool kThreadsOnly;  // under the thread sanitizer, which sees nothing new in what one thread does

inline bool long_tests() {
  const char* const value = std::getenv("SPARSEWIRE_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

// How often, how many, how large: `all` with ./test.sh --all, `usual` otherwise.
template <class T>
T effort(T usual, T all) {
  return long_tests() ? all : usual;
}

}  // namespace sparsewire
