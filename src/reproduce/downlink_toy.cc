// Three workers with different minima: how compressing the uplink, the downlink, or both changes the final loss.
//
// Zou, De Sterck, Liu, Downlink compression improves TopK sparsification, 2022: K = Kd = 1 of 100 entries, lr 0.01,
// 1000 steps, the mean of F over the last 200. Both memories hold lr*gradient.
#include <fmt/core.h>

#include <cmath>
#include <map>

#include "reproduce/reproduction.h"
#include "reproduce/rounds.h"
#include "reproduce/table.h"

namespace sparsewire::reproduce {
namespace {

constexpr int kWorkers = 3;
constexpr double kOptimum = 50.0 * 122 / 9;  // 100/2 times the variance of 1, 5, 10: 677.78
constexpr double kNearOptimum = 0.01;
constexpr double kNear = 4;  // single seeds of `bidirectional` differ by 6, means of five by less than this

struct Method {
  const char* name;
  const char* sparsifier;
  const char* downlink;
  double published;
};
constexpr double kUplink = 700.3;
constexpr double kBidirectional = 694.3;
constexpr Method kMethods[] = {{"dense", "dense", "", kOptimum},
                               {"uplink", "topk:k=1", "", kUplink},
                               {"bidirectional", "topk:k=1", "topk:k=1", kBidirectional},
                               {"downlink", "dense", "topk:k=1", kOptimum}};

double final_loss(const Method& method, std::uint64_t rounds, std::uint64_t seed) {
  const auto problem = train::make_problem("downlink_toy", {.workers = kWorkers, .seed = seed, .data = {}});
  auto& precise = dynamic_cast<train::PreciseProblem&>(*problem);
  const Plan plan{.worker = {.sparsifier = method.sparsifier,
                             .feedback = "ef:scale=lr",
                             .exchange = "server",
                             .downlink = method.downlink,
                             .seed = seed},
                  .workers = kWorkers,
                  .rounds = rounds,
                  .lr = 0.01};
  const std::uint64_t last = std::max<std::uint64_t>(1, rounds / 5);
  double sum = 0;
  run(plan, precise, [&](const Round& round) {
    if (round.step + last > rounds) sum += precise.evaluate_at(round.weights).loss;
  });
  return sum / static_cast<double>(last);
}

}  // namespace

Result reproduce_downlink_toy(const Options& options, const Progress& progress) {
  const std::uint64_t rounds = options.rounds.value_or(1000);
  const std::uint64_t first = options.seed.value_or(0);
  const std::uint64_t seeds = options.seeds.value_or(options.by_size<std::uint64_t>(5, 5, 20));

  Result result;
  Table table({"method", "mean F at the end", "to compare with", "F*"});
  std::map<std::string, double> means;
  std::size_t done = 0;
  for (const Method& method : kMethods) {
    double sum = 0;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      progress(done++, std::size(kMethods) * seeds);
      const double loss = final_loss(method, rounds, seed);
      sum += loss;
      result.measured.push_back({.method = method.name,
                                 .workers = kWorkers,
                                 .seed = seed,
                                 .step = rounds,
                                 .metric = "mean_loss",
                                 .value = loss});
    }
    means[method.name] = sum / static_cast<double>(seeds);
    table.add({method.name, fixed(means[method.name], 3), fixed(method.published, 2), fixed(kOptimum, 2)});
    result.measured.push_back({.method = method.name,
                               .workers = kWorkers,
                               .step = rounds,
                               .metric = "mean_loss_over_seeds",
                               .value = means[method.name]});
  }
  result.table = table.text();
  const bool downlink_arrives = std::abs(means["downlink"] - kOptimum) < kNearOptimum;
  const bool both_as_published =
      std::abs(means["uplink"] - kUplink) < kNear && std::abs(means["bidirectional"] - kBidirectional) < kNear;
  result.verdict = downlink_arrives && both_as_published && means["bidirectional"] < means["uplink"]
                       ? Verdict::holds
                       : Verdict::does_not_hold;
  result.reason = fmt::format("uplink only ends at {}, both ways at {}, downlink only {} above the optimum, over {}{}",
                              fixed(means["uplink"], 2), fixed(means["bidirectional"], 2),
                              fixed(means["downlink"] - kOptimum, 4), seeds, seeds == 1 ? " seed" : " seeds");
  return result;
}

}  // namespace sparsewire::reproduce
