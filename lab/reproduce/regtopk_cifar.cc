// RegTop-k against Top-k on a residual network, both with error feedback.
//
// Bereyhi, Liang, Boudreau, Afana, RegTop-k, 2025: ResNet-18 on CIFAR-10, 8 workers, batches of 20; about 8 points more
// accurate than Top-k at 0.1 %. Their absolute numbers and their learning rates are not known.
#include <fmt/core.h>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kHalfOfTheirs = 0.04;  // of the 8 points

void judge_regtopk(const Outcomes& outcomes, Result& result) {
  Findings findings{result};
  for (const auto& part : outcomes) {
    if (part->name == "dense") continue;
    const auto difference = part->difference("regtopk", "topk");
    findings.compare(part->name + ":", "RegTop-k", difference, "Top-k",
                     is_clearly_more(difference) && is_at_least(difference, kHalfOfTheirs));
  }
  findings.conclude(
      fmt::format("RegTop-k is more accurate than Top-k, beyond what seeds explain, in {} of {} parts, and by at least "
                  "{:.0f} points in {}",
                  findings.clear, findings.all, 100 * kHalfOfTheirs, findings.right));
}

}  // namespace

Experiment regtopk_cifar() {
  return {.name = "regtopk-cifar",
          .paper = "arXiv:2501.05633",
          .claim = "at 0.1 % RegTop-k is about 8 points more accurate than Top-k with ResNet-18 on CIFAR-10",
          .recipe = cifar_recipe({{0.1}, {0.03, 0.1, 0.3}}),
          .ratios = {{"0.01"}, {"0.001"}},
          .parts = {{.name = "one_way", .title = "uplink compressed", .methods = Texts{"topk", "regtopk"}},
                    {.name = "both_ways",
                     .title = "downlink compressed too, with a memory on the server",
                     .methods = Texts{"topk | downlink=topk name=topk", "regtopk | downlink=topk name=regtopk"}},
                    // A part of its own, because its steps take several times as long.
                    {.name = "dense",
                     .title = "nothing compressed, to compare with",
                     .methods = Texts{"dense"},
                     .ratios = Texts{}}},
          .judge = judge_regtopk};
}

}  // namespace sparsewire::reproduce
