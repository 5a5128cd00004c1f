// Every method, one way and both ways, on a residual network. DGC is here too: Lin, Han, Mao, Wang, Dally, Deep
// gradient compression, 2018, with momentum correction and a warm-up of the ratio.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kAPoint = 0.01;

void judge_all(const Outcomes& outcomes, Result& result) {
  const Outcome* const one_way = find_part(outcomes, "one_way");
  const study::Judged* const dense = one_way == nullptr ? nullptr : one_way->find("dense");
  const study::Summary* const baseline = dense == nullptr ? nullptr : dense->find(one_way->plan.primary);
  if (baseline == nullptr) return;
  std::size_t near = 0;
  std::size_t all = 0;
  std::size_t compared = 0;
  for (const auto& outcome : outcomes) {
    for (const study::Judged& one : outcome->judgement.groups) {
      const study::Group& group = one.choice.group;
      const std::string& name = outcome->plan.methods[group.method_index].name();
      if (name == "dense") continue;
      const study::Summary* const mine = one.find(outcome->plan.primary);
      const auto difference =
          mine == nullptr ? std::nullopt : difference_of(mine->by_seed, baseline->by_seed, /*higher_is_better=*/true);
      ++all;
      if (difference) ++compared;
      if (difference && difference->mean >= -kAPoint) ++near;
      result.conditions.push_back(fmt::format("{}, ratio {}: {}", outcome->part.name, group.ratio,
                                              in_words(name, difference, "dense", /*is_accuracy=*/true)));
    }
  }
  if (compared == 0) return;
  result.verdict = near == all ? Verdict::holds : near > 0 ? Verdict::partly : Verdict::does_not_hold;
  result.reason = fmt::format("{} of {} methods and ratios are within a point of dense training or above", near, all);
}

}  // namespace

Result reproduce_all_cifar(const Options& options_given, const Progress& /*progress*/) {
  const bool is_quick = options_given.size == Size::quick;
  std::vector<Part> parts;
  for (const bool both : {false, true}) {
    Part part = cifar_part(options_given);
    part.name = both ? "both_ways" : "one_way";
    part.title = both ? "downlink compressed too" : "uplink compressed";
    part.request.ratios = ratios_of(options_given, "0.1");
    part.request.lrs = is_quick ? std::vector{0.1} : std::vector{0.03, 0.1, 0.3};
    if (is_quick) part.request.tune_seeds = 0;
    part.request.methods = {"dense", "topk", "rtopk", "randomk", "regtopk", "threshold",
                            // Its momentum makes steps longer by 1/(1 - m), so its learning rates are shorter.
                            fmt::format("topk:warmup_from=0.25,warmup_steps={} | feedback=momentum:m=0.9,clip=1 "
                                        "lr={} name=dgc",
                                        is_quick ? 20 : 200, is_quick ? "0.01" : "0.003/0.01/0.03")};
    if (both) {
      part.request.methods = {"topk | downlink=topk name=topk", "rtopk | downlink=topk name=rtopk",
                              "regtopk | downlink=topk name=regtopk", "threshold | downlink=threshold name=threshold"};
    }
    parts.push_back(std::move(part));
  }
  return run_parts(std::move(parts), options_given, judge_all);
}

}  // namespace sparsewire::reproduce
