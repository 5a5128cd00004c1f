// How much a test does: less under sanitizers, which are many times slower, and more with SPARSEWIRE_LONG_TESTS=1, as
// ./test.sh --all sets it.
#pragma once

#include <cstdlib>
#include <string_view>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPARSEWIRE_SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SPARSEWIRE_SLOW_BUILD 1
#endif
#endif

namespace sparsewire {

#ifdef SPARSEWIRE_SLOW_BUILD
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

inline bool long_tests() {
  const char* const value = std::getenv("SPARSEWIRE_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace sparsewire
