// rTop-k against Top-k and Random-k, with one local step and with many.
//
// Barnes, Inan, Isik, Ozgur, rTop-k: a statistical estimation approach to distributed SGD, 2020: images and language at
// 99 % and 99.9 % compression. Their values of r are not known, so r/k is chosen from four on the tuning seeds.
#include <fmt/core.h>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

void judge_rtopk(const Outcomes& outcomes, Result& result) {
  Findings findings{result};
  for (const auto& part : outcomes) {
    for (const std::string& ratio : part->plan.ratios) {
      const std::string best = part->best_tuned("rtopk", ratio);
      for (const char* rival : {"topk", "randomk"}) {
        const auto difference = part->difference(best, rival, ratio);
        findings.compare(fmt::format("{}, ratio {}:", part->name, ratio), best.empty() ? "rTop-k" : best, difference,
                         rival, is_more(difference));
      }
    }
  }
  findings.conclude(fmt::format("the r/k chosen on the tuning seeds is better in {} of {} comparisons, clearly in {}{}",
                                findings.right, findings.all, findings.clear, findings.first_wrong));
}

Experiment rtopks(std::string_view name, std::string_view claim, Recipe recipe) {
  return {.name = name,
          .paper = "arXiv:2005.10761",
          .claim = claim,
          .recipe = std::move(recipe),
          .methods = {{"topk", "rtopk:r=2", "rtopk:r=5", "randomk"},
                      {"dense", "topk", "rtopk:r=1.5", "rtopk:r=2", "rtopk:r=5", "rtopk:r=10", "randomk"}},
          .ratios = {{"0.01"}, {"0.001", "0.01"}},
          .parts = {{.name = "one_step", .title = "an exchange after each step"},
                    {.name = "local_steps",
                     .title = "an exchange after 10 local steps",
                     .settings = {{"local_steps", 10U}}}},
          .judge = judge_rtopk};
}

}  // namespace

Experiment rtopk_fashion() {
  return rtopks("rtopk-fashion",
                "on Fashion-MNIST rTop-k is more accurate than Top-k and than Random-k, with one local step and with "
                "many",
                {.problem = {"fashion_mlp"},
                 .passes = {1.5, 6, 30},
                 .tune_passes = {0.5, 2, 10},
                 .quick_passes = 1.5,
                 .lrs = {{0.1, 0.3}, {0.03, 0.1, 0.3}}});
}

Experiment rtopk_text() {
  return rtopks("rtopk-text",
                "on text rTop-k has a lower loss than Top-k and than Random-k, with one local step and with many",
                {.problem = {"lstm:width=64", "lstm"},
                 .workers = 8,
                 .settings = {{"validation", 0}},  // the text has a part for it
                 .primary = study::kTestLoss,
                 .passes = {1, 4, 20},
                 .tune_passes = {0.5, 2, 8},
                 .lrs = {{2, 4}, {1, 2, 4}}});
}

}  // namespace sparsewire::reproduce
