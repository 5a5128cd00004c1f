// SparseLoCo against averaging of whole weights, against DiLoCo, and against Top-k after every step, on a small GPT.
//
// Sarfi, Thérien, Lidin, Belilovsky, Communication efficient LLM pre-training with SparseLoCo, 2025: local steps of
// AdamW, error feedback with decay 0.95, the 64 largest of every 4096 entries, 2 bits a value, each entry divided by
// the workers that sent it.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loop/preset.h"
#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kNear = 0.01;           // of the loss
constexpr double kLeastTimesFewer = 20;  // bytes
constexpr std::string_view kThreeTimesDown = "server downlink=topk:k=192,chunk=4096";
constexpr std::string_view kRandom = "rtopk:r=2";
constexpr std::string_view kThreshold = "threshold:calibrate=10";  // 64, as by default, is longer than a run

std::optional<double> bytes_of(const Outcome& outcome, std::string_view method) {
  const study::Judged* const one = outcome.find(method);
  const study::Summary* const numbers = one == nullptr ? nullptr : one->find(study::kBytes);
  return numbers == nullptr ? std::nullopt : numbers->mean;
}

void judge_loco(const Outcomes& outcomes, Result& result) {
  const Outcome* const local = find_part(outcomes, "local_steps");
  if (local == nullptr) return;
  const auto difference = local->difference("sparseloco", "averaging");
  const auto averaging = local->score("averaging");
  const auto bytes = bytes_of(*local, "sparseloco");
  const auto dense_bytes = bytes_of(*local, "averaging");
  if (!difference || !averaging || !bytes || !dense_bytes) {
    result.reason = "a run diverged";
    return;
  }
  const bool is_near = difference->mean >= -kNear * *averaging;
  const double saving = *dense_bytes / *bytes;
  result.verdict = is_near && saving >= kLeastTimesFewer   ? Verdict::holds
                   : is_near || saving >= kLeastTimesFewer ? Verdict::partly
                                                           : Verdict::does_not_hold;
  result.reason =
      fmt::format("{}, whose test loss is {:.4f}, and moves 1/{:.1f} of its bytes",
                  in_words("SparseLoCo", difference, "averaging", /*is_accuracy=*/false), *averaging, saving);
  const Outcome* const each = find_part(outcomes, "every_step");
  if (each == nullptr) return;
  const study::Summary* const mine = local->find("sparseloco")->find(local->plan.primary);
  for (const char* method : {"dense", "topk"}) {
    const study::Judged* const other = each->find(method);
    const study::Summary* const numbers = other == nullptr ? nullptr : other->find(each->plan.primary);
    const auto apart = numbers == nullptr ? std::nullopt
                                          : difference_of(mine->by_seed, numbers->by_seed,
                                                          study::is_higher_better(each->plan, each->plan.primary));
    const auto other_bytes = bytes_of(*each, method);
    if (!apart || !other_bytes) continue;
    result.conditions.push_back(fmt::format("{} after every step, and moves 1/{:.1f} of its bytes",
                                            in_words("SparseLoCo", apart, method, /*is_accuracy=*/false),
                                            *other_bytes / *bytes));
  }
}

// SparseLoCo's options, but for the sparsifier and the exchange.
std::string sparse(const train::TrainConfig& preset, std::string_view sparsifier, std::string_view more,
                   std::string_view name) {
  return fmt::format("{} | feedback={} codec={} average={} exchange={} name={}", sparsifier, preset.feedback,
                     preset.codec, preset.average, more, name);
}

std::vector<std::string> local_methods(const train::TrainConfig& preset) {
  return {"dense | name=averaging", "dense | outer_lr=0.7 outer_momentum=0.9 name=diloco",
          sparse(preset, preset.sparsifier, preset.exchange, "sparseloco"),
          sparse(preset, preset.sparsifier, kThreeTimesDown, "both_ways")};
}

// Other ones than Top-k, of the same mean count.
std::vector<std::string> other_sparsifiers(const train::TrainConfig& preset, Size size) {
  std::vector<std::string> methods{sparse(preset, kThreshold, preset.exchange, "threshold"),
                                   sparse(preset, kRandom, preset.exchange, "rtopk"),
                                   sparse(preset, "regtopk:mu=4", preset.exchange, "regtopk")};
  if (size == Size::full) {
    methods.push_back(sparse(preset, kThreshold, kThreeTimesDown, "threshold_both_ways"));
    methods.push_back(sparse(preset, kRandom, kThreeTimesDown, "rtopk_both_ways"));
  }
  return methods;
}

}  // namespace

Result reproduce_loco_text(const Options& options_given, const Progress& /*progress*/) {
  train::TrainConfig preset;
  train::set_from_preset(preset, "sparseloco");
  std::vector<Part> parts;
  for (const char* name : {"local_steps", "sparsifiers", "every_step"}) {
    Part part = text_part(options_given);
    part.name = name;
    part.problem = options_given.size == Size::quick ? "gpt:width=64,layers=2,heads=2" : "gpt";
    part.request.config.optimiser = preset.optimiser;
    part.request.config.clip = 1;  // as the authors
    if (options_given.size == Size::quick) {
      part.request.lrs = {0.001, 0.003};
    } else {
      part.request.lrs = {0.0003, 0.001, 0.003};
      // Chosen on whole runs: what is fast at first may diverge later.
      part.passes = part.tune_passes = options_given.size == Size::full ? 20 : 3;
    }
    part.request.ratios = {"0.015625"};  // 64 of 4096
    if (part.name == "every_step") {
      part.title = "an exchange after each step";
      part.request.methods = {"dense", "topk"};
    } else {
      part.title = fmt::format("an exchange after {} local steps", preset.local_steps);
      part.request.config.local_steps = preset.local_steps;
      part.request.methods =
          part.name == "local_steps" ? local_methods(preset) : other_sparsifiers(preset, options_given.size);
    }
    parts.push_back(std::move(part));
  }
  return run_parts(std::move(parts), options_given, judge_loco);
}

}  // namespace sparsewire::reproduce
