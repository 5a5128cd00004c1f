// A constant threshold against Top-k, over the whole model and over each layer, at equal bytes.
//
// Sahu et al., Rethinking gradient sparsification as total error minimization, 2021, in their form for deep networks:
// the memory holds gradients; momentum 0.9 (Nesterov) comes after the exchange. Their claim is strongest where the
// workers' data differ, because a threshold bounds the memory whatever they are: hence the label shards.
#include <fmt/core.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr const char* kRivals[] = {"topk", "topk_by_layer"};

// `quick`: the ratio of the quick form.
std::vector<Part> threshold_parts(const Part& like, const char* quick, const Options& options) {
  std::vector<Part> parts;
  for (const auto& [split, spec, title] :
       {std::tuple{"iid", "iid", "data divided at random"},
        {"shards", "shards:per_worker=2", "sorted by label, two shards for each worker"}}) {
    for (const std::string& ratio : ratios_of(options, quick, /*with_between=*/true)) {
      Part part = like;
      part.name = fmt::format("{}-{}", split, ratio);
      part.title = title;
      part.request.config.split = spec;
      part.request.config.optimiser = "sgd:momentum=0.9,nesterov=true";
      part.request.methods = {"topk", "topk | scope=layer name=topk_by_layer", "threshold"};
      part.request.ratios = {ratio};
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

void judge_thresholds(const Outcomes& outcomes, Result& result) {
  std::size_t right = 0;
  std::size_t clear = 0;
  std::size_t all = 0;
  std::size_t compared = 0;
  std::string worst;
  double least = 0;
  for (const auto& outcome : outcomes) {
    if (outcome->plan.config.workers == 1) {
      result.reason = "one worker alone sends nothing, so there are no equal bytes";
      return;
    }
    for (const char* rival : kRivals) {
      const auto difference = outcome->difference_at_equal_bytes("threshold", rival);
      const std::string text =
          fmt::format("{}: at equal bytes {}", outcome->part.name, in_words("threshold", difference, rival, true));
      result.conditions.push_back(text);
      ++all;
      if (!difference) continue;
      ++compared;
      if (difference->mean >= 0) ++right;
      if (difference->mean > 0 && difference->is_clear()) ++clear;
      if (difference->mean < least) {
        least = difference->mean;
        worst = text;
      }
    }
  }
  if (compared == 0) return;
  result.verdict = right == all ? Verdict::holds : right > 0 ? Verdict::partly : Verdict::does_not_hold;
  result.reason = fmt::format(
      "in {} of {} comparisons at equal bytes the threshold is at least as accurate as Top-k, in "
      "{} clearly more",
      right, all, clear);
  if (!worst.empty()) result.reason += "; the worst is " + worst;
}

}  // namespace

Result reproduce_threshold_fashion(const Options& options_given, const Progress& /*progress*/) {
  Part like = make_part("", "", options_given);
  like.problem = "fashion_mlp";
  like.passes = options_given.by_size(2.0, 6.0, 30.0);
  like.tune_passes = options_given.by_size(0.5, 2.0, 10.0);
  like.quick_passes = 2;
  like.request.lrs = options_given.size == Size::quick ? std::vector{0.03, 0.1} : std::vector{0.01, 0.03, 0.1};
  return run_parts(threshold_parts(like, "0.01", options_given), options_given, judge_thresholds);
}

Result reproduce_threshold_cifar(const Options& options_given, const Progress& /*progress*/) {
  Part like = cifar_part(options_given);
  like.request.lrs = options_given.size == Size::quick ? std::vector{0.03} : std::vector{0.01, 0.03, 0.1};
  if (options_given.size == Size::quick) like.request.tune_seeds = 0;
  return run_parts(threshold_parts(like, "0.1", options_given), options_given, judge_thresholds);
}

}  // namespace sparsewire::reproduce
