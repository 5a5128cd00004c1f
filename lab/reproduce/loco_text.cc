// SparseLoCo against averaging of whole weights, against DiLoCo, and against Top-k after every step, on a small GPT.
//
// Sarfi, Thérien, Lidin, Belilovsky, Communication efficient LLM pre-training with SparseLoCo, 2025: local steps of
// AdamW, error feedback with decay 0.95, the 64 largest of every 4096 entries, 2 bits a value, each entry divided by
// the workers that sent it.
#include <fmt/core.h>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kNear = 0.01;           // of the loss
constexpr double kLeastTimesFewer = 20;  // bytes
constexpr const char* kLocalSteps = "an exchange after 30 local steps";
constexpr const char* kThreeTimesDown = "server downlink=topk:k=192,chunk=4096";
constexpr const char* kRandom = "rtopk:r=2";
constexpr const char* kThreshold = "threshold:calibrate=10";  // 64, as by default, is longer than a run

// SparseLoCo, but for the sparsifier and the exchange.
std::string sparse(const char* sparsifier, const char* exchange, const char* name) {
  return fmt::format("{} | feedback=ef:decay=0.95 codec=auto:values=int2 average=senders exchange={} name={}",
                     sparsifier, exchange, name);
}

BySize<Texts> other_sparsifiers() {
  const Texts one_way{sparse(kThreshold, "allgather", "threshold"), sparse(kRandom, "allgather", "rtopk"),
                      sparse("regtopk:mu=4", "allgather", "regtopk")};
  Texts all = one_way;
  all.push_back(sparse(kThreshold, kThreeTimesDown, "threshold_both_ways"));
  all.push_back(sparse(kRandom, kThreeTimesDown, "rtopk_both_ways"));
  return {one_way, one_way, all};
}

void judge_loco(const Outcomes& outcomes, Result& result) {
  const Outcome* const local = find_part(outcomes, "local_steps");
  if (local == nullptr) return;
  const auto difference = local->difference("sparseloco", "averaging");
  const auto loss = local->mean("averaging", study::kTestLoss);
  const auto bytes = local->mean("sparseloco", study::kBytes);
  const auto dense_bytes = local->mean("averaging", study::kBytes);
  if (!difference || !loss || !bytes || !dense_bytes) {
    result.reason = "a run diverged";
    return;
  }
  const bool is_near = is_at_least(difference, -kNear * *loss);
  const bool is_small = *dense_bytes / *bytes >= kLeastTimesFewer;
  result.verdict = is_near && is_small   ? Verdict::holds
                   : is_near || is_small ? Verdict::partly
                                         : Verdict::does_not_hold;
  result.reason = fmt::format("{}, whose test loss is {:.4f}, and moves 1/{:.1f} of its bytes",
                              in_words("SparseLoCo", difference, "averaging"), *loss, *dense_bytes / *bytes);
  const Outcome* const each = find_part(outcomes, "every_step");
  if (each == nullptr) return;
  for (const char* method : {"dense", "topk"}) {
    const auto apart = difference_of(local->numbers("sparseloco", study::kTestLoss),
                                     each->numbers(method, study::kTestLoss), /*is_accuracy=*/false);
    const auto other_bytes = each->mean(method, study::kBytes);
    if (!apart || !other_bytes) continue;
    result.conditions.push_back(fmt::format("{} after every step, and moves 1/{:.1f} of its bytes",
                                            in_words("SparseLoCo", apart, method), *other_bytes / *bytes));
  }
}

}  // namespace

Experiment loco_text() {
  return {
      .name = "loco-text",
      .paper = "arXiv:2508.15706",
      .claim = "with local steps, a few coarse values reach the loss of averaging all weights",
      .recipe = {.problem = {"gpt:width=64,layers=2,heads=2", "gpt"},
                 .workers = 8,
                 .settings = {{"validation", 0}, {"optimiser", "adamw"}, {"clip", 1}},  // the text has a part for it
                 .primary = study::kTestLoss,
                 .passes = {1, 3, 20},
                 .tune_passes = {0.5, 3, 20},  // whole runs: what is fast at first may diverge later
                 .lrs = {{0.001, 0.003}, {0.0003, 0.001, 0.003}}},
      .ratios = Texts{"0.015625"},  // 64 of 4096
      .parts = {{.name = "local_steps",
                 .title = kLocalSteps,
                 .settings = {{"local_steps", 30U}},
                 .methods = Texts{"dense | name=averaging", "dense | outer_lr=0.7 outer_momentum=0.9 name=diloco",
                                  sparse("topk:k=64,chunk=4096", "allgather", "sparseloco"),
                                  sparse("topk:k=64,chunk=4096", kThreeTimesDown, "both_ways")}},
                {.name = "sparsifiers",
                 .title = kLocalSteps,
                 .settings = {{"local_steps", 30U}},
                 .methods = other_sparsifiers()},
                {.name = "every_step", .title = "an exchange after each step", .methods = Texts{"dense", "topk"}}},
      .judge = judge_loco};
}

}  // namespace sparsewire::reproduce
