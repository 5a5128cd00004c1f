// How much a test does: less under sanitizers, which are many times slower, and more with SPARSEWIRE_LONG_TESTS=1, as
// ./test.sh --all sets it.
#pragma once

#include <cstdlib>
#include <string_view>

namespace sparsewire {

// Tests are not always compiled with the sanitizers of what they test, so tests/CMakeLists.txt says it.
#ifdef SPARSEWIRE_SLOW_BUILD
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

// Built for the thread sanitizer, which sees nothing new in what one thread does.
#ifdef SPARSEWIRE_TEST_THREADS_ONLY
inline constexpr bool kThreadsOnly = true;
#else
inline constexpr bool kThreadsOnly = false;
#endif

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
