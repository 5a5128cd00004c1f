#include "kernels/simd.h"

#include <fmt/format.h>

#include "kernels/targets.h"
// which must come before highway.h: HWY_TARGETS follows it
#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "sparsewire/errors.h"
#include "sparsewire/support/simd.h"

namespace sparsewire::kernels {
namespace {

std::string lower_case(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::string name_of(std::int64_t target) { return lower_case(hwy::TargetName(target)); }

// The targets that are compiled in and that this processor supports. Evaluated once, so that it does not depend on a
// level that was forced later.
std::int64_t runnable() {
  static const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

// Highway gives better targets lower bits.
std::vector<std::int64_t> targets_slowest_first() {
  std::vector<std::int64_t> targets;
  for (int bit = 62; bit >= 0; --bit) {
    const std::int64_t target = std::int64_t{1} << bit;
    if ((runnable() & target) != 0) targets.push_back(target);
  }
  return targets;
}

}  // namespace

std::vector<std::string> simd_levels() {
  std::vector<std::string> names;
  for (const std::int64_t target : targets_slowest_first()) names.push_back(name_of(target));
  return names;
}

std::string simd_level() {
  choose_simd();
  const std::int64_t targets = hwy::SupportedTargets() & runnable();
  return name_of(targets & -targets);
}

void force_simd(std::string_view level) {
  const std::string wanted_name = lower_case(std::string(level));
  std::int64_t wanted = 0;
  for (const std::int64_t target : targets_slowest_first()) {
    if (name_of(target) == wanted_name) wanted = target;
  }
  if (wanted == 0 && wanted_name != "auto") {
    throw UsageError(fmt::format("SPARSEWIRE_SIMD={} is not one of auto, {}", level, fmt::join(simd_levels(), ", ")));
  }
  hwy::SetSupportedTargetsForTest(wanted);  // 0: all that the processor supports
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void choose_simd() {
  static std::once_flag once;  // if this throws, the next call tries again
  std::call_once(once, [] {
    runnable();
    const char* level = std::getenv("SPARSEWIRE_SIMD");  // NOLINT(concurrency-mt-unsafe): sparsewire never calls setenv
    if (level != nullptr && *level != '\0' && std::string_view(level) != "auto") force_simd(level);
  });
}

}  // namespace sparsewire::kernels

void sparsewire::check_simd() { kernels::choose_simd(); }
