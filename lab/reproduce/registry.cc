#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "reproduce/deep.h"
#include "reproduce/reproduction.h"
#include "text/names.h"

namespace sparsewire::reproduce {

#define REPRODUCTION(file, name, paper, options, claim) \
  Result reproduce_##file(const Options& options_given, const Progress& progress);
#define EXPERIMENT(function) Experiment function();
#include "reproduce/reproductions.def"
#undef REPRODUCTION
#undef EXPERIMENT

namespace {

constexpr const char* kDeepOptions = "workers device data-dir only rounds seed seeds out jobs max-hours dry-run quiet";

template <Experiment (*experiment)()>
Reproduction with_deep_networks() {
  const Experiment one = experiment();
  return {one.name, one.paper, kDeepOptions, one.claim,
          [](const Options& options, const Progress& /*progress*/) { return run_experiment(experiment(), options); }};
}

const std::vector<Reproduction>& all() {
  static const std::vector<Reproduction> kAll{
#define REPRODUCTION(file, name, paper, options, claim) {name, paper, options, claim, reproduce_##file},
#define EXPERIMENT(function) with_deep_networks<function>(),
#include "reproduce/reproductions.def"
#undef REPRODUCTION
#undef EXPERIMENT
  };
  return kAll;
}

}  // namespace

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::partly:
      return "partly";
    case Verdict::does_not_hold:
      return "does not hold";
    case Verdict::not_judged:
      break;
  }
  return "not judged";
}

void withhold_if_short(std::uint64_t rounds, std::uint64_t quick, Result& result) {
  if (rounds >= quick || result.verdict == Verdict::not_judged) return;
  result.verdict = Verdict::not_judged;
  result.reason = fmt::format("too short to judge: --rounds {} is less than the {} of --quick", rounds, quick);
}

bool Reproduction::takes(std::string_view option) const noexcept {
  std::string_view rest = options;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == option) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::span<const Reproduction> reproductions() { return all(); }

const Reproduction& find_reproduction(std::string_view name) {
  return all()[find_by_name(all(), name, "a reproduction")];
}

}  // namespace sparsewire::reproduce
