// A constant threshold against Top-k, over the whole model and over each layer, at equal bytes.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021, in their form for deep networks:
// the memory holds gradients; momentum 0.9 (Nesterov) comes after the exchange. Their claim is strongest where the
// workers' data differ, because a threshold bounds the memory whatever they are: hence the label shards.
#include <fmt/core.h>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

void judge_thresholds(const Outcomes& outcomes, Result& result) {
  Findings findings{result};
  for (const auto& part : outcomes) {
    for (const char* rival : {"topk", "topk_by_layer"}) {
      const auto difference = part->difference_at_equal_bytes("threshold", rival);
      findings.compare(part->name + ": at equal bytes", "threshold", difference, rival, is_at_least(difference, 0));
    }
  }
  findings.conclude(
      fmt::format("in {} of {} comparisons at equal bytes the threshold is at least as accurate as "
                  "Top-k, in {} clearly more{}",
                  findings.right, findings.all, findings.clear, findings.worst));
}

Experiment thresholds(std::string_view name, std::string_view claim, Recipe recipe, const char* quick_ratio) {
  recipe.settings = {{"optimiser", "sgd:momentum=0.9,nesterov=true"}};
  return {.name = name,
          .paper = "arXiv:2108.00951",
          .claim = claim,
          .recipe = std::move(recipe),
          .methods = Texts{"topk", "topk | scope=layer name=topk_by_layer", "threshold"},
          .ratios = {{quick_ratio}, {"0.001", "0.003", "0.01"}},
          .parts = {{.name = "iid", .title = "data divided at random", .is_for_each_ratio = true},
                    {.name = "shards",
                     .title = "sorted by label, two shards for each worker",
                     .settings = {{"split", "shards:per_worker=2"}},
                     .is_for_each_ratio = true}},
          .alone = "one worker alone sends nothing, so there are no equal bytes",
          .judge = judge_thresholds};
}

}  // namespace

Experiment threshold_fashion() {
  return thresholds("threshold-fashion",
                    "with as many bytes a constant threshold is at least as accurate on Fashion-MNIST as Top-k, of the "
                    "model or of each layer",
                    {.problem = {"fashion_mlp"},
                     .passes = {2, 6, 30},
                     .tune_passes = {0.5, 2, 10},
                     .quick_passes = 2,
                     .lrs = {{0.03, 0.1}, {0.01, 0.03, 0.1}}},
                    "0.01");
}

Experiment threshold_cifar() {
  return thresholds("threshold-cifar",
                    "with as many bytes a constant threshold is at least as accurate on CIFAR-10 as Top-k, of the "
                    "model or of each layer",
                    cifar_recipe({{0.03}, {0.01, 0.03, 0.1}}), "0.1");
}

}  // namespace sparsewire::reproduce
