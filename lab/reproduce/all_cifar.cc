// Every method, one way and both ways, on a residual network. DGC is here too: Lin, Han, Mao, Wang, Dally, Deep
// gradient compression, 2018, with momentum correction and a warm-up of the ratio.
#include <fmt/core.h>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kAPoint = 0.01;

void judge_all(const Outcomes& outcomes, Result& result) {
  const Outcome* const one_way = find_part(outcomes, "one_way");
  const study::Summary* const dense = one_way == nullptr ? nullptr : one_way->numbers("dense", one_way->plan.primary);
  if (dense == nullptr) return;
  Findings findings{result};
  for (const auto& part : outcomes) {
    for (const study::Judged& one : part->judgement.groups) {
      if (part->method_of(one) == "dense") continue;
      const auto difference = difference_of(one.find(part->plan.primary), dense, /*is_accuracy=*/true);
      findings.compare(fmt::format("{}, ratio {}:", part->name, one.choice.group.ratio), part->method_of(one),
                       difference, "dense", is_at_least(difference, -kAPoint));
    }
  }
  findings.conclude(fmt::format("{} of {} methods and ratios are within a point of dense training or above",
                                findings.right, findings.all));
}

// Its momentum makes steps longer by 1/(1 - m), so its learning rates are shorter.
constexpr const char* kDgc =
    "topk:warmup_from=0.25,warmup_steps=200 | feedback=momentum:m=0.9,clip=1 lr=0.003/0.01/0.03 name=dgc";
constexpr const char* kQuickDgc =
    "topk:warmup_from=0.25,warmup_steps=20 | feedback=momentum:m=0.9,clip=1 lr=0.01 name=dgc";

}  // namespace

Experiment all_cifar() {
  return {.name = "all-cifar",
          .paper = "arXiv:2209.15203",
          .claim = "on CIFAR-10 every method, one way and both ways, is as accurate as dense training",
          .recipe = cifar_recipe({{0.1}, {0.03, 0.1, 0.3}}),
          .ratios = {{"0.1"}, {"0.001", "0.01"}},
          .parts = {{.name = "one_way",
                     .title = "uplink compressed",
                     .methods = BySize<Texts>{{"dense", "topk", "rtopk", "randomk", "regtopk", "threshold", kQuickDgc},
                                              {"dense", "topk", "rtopk", "randomk", "regtopk", "threshold", kDgc}}},
                    {.name = "both_ways",
                     .title = "downlink compressed too",
                     .methods = Texts{"topk | downlink=topk name=topk", "rtopk | downlink=topk name=rtopk",
                                      "regtopk | downlink=topk name=regtopk",
                                      "threshold | downlink=threshold name=threshold"}}},
          .judge = judge_all};
}

}  // namespace sparsewire::reproduce
