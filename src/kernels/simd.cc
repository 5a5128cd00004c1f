#include "kernels/simd.h"

#include <fmt/core.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <mutex>

#include "core/environment.h"
#include "sparsewire/errors.h"

namespace sparsewire::kernels {
namespace {

std::string lower_case(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::string name_of(std::int64_t target) { return lower_case(hwy::TargetName(target)); }

// Compiled in and able to run here. What the processor can do does not change, so a forced level is left out of
// account.
std::int64_t runnable() {
  static const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

// Highway numbers better targets lower.
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
  std::string valid = "auto";
  for (const std::int64_t target : targets_slowest_first()) {
    const std::string name = name_of(target);
    if (name == wanted_name) wanted = target;
    valid += ", " + name;
  }
  if (wanted == 0 && wanted_name != "auto") {
    throw UsageError(fmt::format("SPARSEWIRE_SIMD={} is not one of {}", level, valid));
  }
  hwy::SetSupportedTargetsForTest(wanted);  // 0: whatever the processor has
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void choose_simd() {
  static std::once_flag once;  // a failed choice throws again at the next call
  std::call_once(once, [] {
    runnable();
    if (const std::string level = environment::simd(); level != "auto") force_simd(level);
  });
}

}  // namespace sparsewire::kernels
