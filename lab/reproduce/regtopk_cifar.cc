// RegTop-k against Top-k on a residual network, both with error feedback.
//
// Bereyhi, Liang, Boudreau, Afana, RegTop-k, 2025: ResNet-18 on CIFAR-10, 8 workers, batches of 20; about 8 points more
// accurate than Top-k at 0.1 %. Their absolute numbers and their learning rates are not known.
#include <fmt/core.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reproduce/deep.h"

namespace sparsewire::reproduce {
namespace {

constexpr const char* kDense = "dense";  // a part of its own: its steps take several times as long
constexpr double kClaimed = 0.08;        // accuracy
constexpr double kEnough = kClaimed / 2;

void judge_regtopk(const Outcomes& outcomes, Result& result) {
  std::size_t all = 0;
  std::size_t compared = 0;
  std::size_t claimed = 0;
  std::size_t better = 0;
  for (const auto& outcome : outcomes) {
    if (outcome->part.name == kDense) continue;
    const auto difference = outcome->difference("regtopk", "topk");
    result.conditions.push_back(
        fmt::format("{}: {}", outcome->part.name, in_words("RegTop-k", difference, "Top-k", /*is_accuracy=*/true)));
    ++all;
    if (!difference) continue;
    ++compared;
    if (difference->mean <= 0) continue;
    const bool is_sure = difference->ci95 && difference->ci95->low > 0;
    if (is_sure) ++better;
    if (is_sure && difference->mean >= kEnough) ++claimed;
  }
  if (compared == 0) return;
  result.verdict = claimed == all ? Verdict::holds : better > 0 ? Verdict::partly : Verdict::does_not_hold;
  result.reason = fmt::format(
      "RegTop-k is more accurate than Top-k, beyond what seeds explain, in {} of {} parts, and by "
      "at least {:.0f} points in {}",
      better, all, 100 * kEnough, claimed);
}

}  // namespace

Result reproduce_regtopk_cifar(const Options& options_given, const Progress& /*progress*/) {
  std::vector<Part> parts;
  using Methods = std::vector<std::string>;
  for (const auto& [name, title, methods] :
       {std::tuple{"one_way", "uplink compressed", Methods{"topk", "regtopk"}},
        {"both_ways", "downlink compressed too, with a memory on the server",
         Methods{"topk | downlink=topk name=topk", "regtopk | downlink=topk name=regtopk"}},
        {kDense, "nothing compressed, to compare with", Methods{"dense"}}}) {
    Part part = cifar_part(options_given);
    part.name = name;
    part.title = title;
    part.request.methods = methods;
    if (part.name != kDense) part.request.ratios = {options_given.size == Size::quick ? "0.01" : "0.001"};
    part.request.lrs = options_given.size == Size::quick ? std::vector{0.1} : std::vector{0.03, 0.1, 0.3};
    if (options_given.size == Size::quick) part.request.tune_seeds = 0;
    parts.push_back(std::move(part));
  }
  return run_parts(std::move(parts), options_given, judge_regtopk);
}

}  // namespace sparsewire::reproduce
