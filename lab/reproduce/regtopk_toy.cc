// Two workers whose large entries cancel: Top-1 sends only these for a hundred steps, RegTop-1 avoids them after one.
//
// Bereyhi, Liang, Boudreau, Afana, Regularized Top-k, 2025: d = 2, k = 1, lr 0.9, mu 1.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reproduce/reproduction.h"
#include "reproduce/rounds.h"
#include "reproduce/table.h"

namespace sparsewire::reproduce {
namespace {

constexpr int kWorkers = 2;
constexpr std::uint64_t kStalls = 99;    // the last step at which Top-1 has not moved, in exact arithmetic
constexpr std::uint64_t kArrived = 100;  // where RegTop-1 and dense are compared
constexpr double kUnmoved = 1e-6;        // of the loss
constexpr double kLikeDense = 1.05;      // times dense training's loss

struct Method {
  std::string name;
  std::optional<std::string> form;
  std::string spec;
};

// The loss before the first step and after each.
std::vector<double> losses_of(const Method& method, std::uint64_t rounds) {
  const auto problem = train::make_problem("regtopk_toy", {.workers = kWorkers, .seed = 0, .data = {}});
  auto& precise = dynamic_cast<train::PreciseProblem&>(*problem);
  const Plan plan{
      .worker = {.sparsifier = method.spec, .exchange = "allgather"}, .workers = kWorkers, .rounds = rounds, .lr = 0.9};
  std::vector<double> losses;
  run(plan, precise, [&](const Round& round) { losses.push_back(precise.evaluate_at(round.weights).loss); });
  return losses;
}

}  // namespace

Result reproduce_regtopk_toy(const Options& options, const Progress& progress) {
  const double mu = options.mu.value_or(1);
  const std::vector<std::uint64_t> at =
      options.at.value_or(std::vector<std::uint64_t>{0, 1, 2, 10, 50, 99, 100, 101, 102, 200});
  const std::uint64_t rounds = std::max(at.back(), kArrived);
  const std::string regtopk = fmt::format("regtopk:k=1,mu={},form=", digits(mu, 17));
  const std::vector<Method> methods{{"dense", {}, "dense"},
                                    {"topk", {}, "topk:k=1"},
                                    {"regtopk", "a", regtopk + "a"},
                                    {"regtopk", "b", regtopk + "b"}};
  Result result;
  std::vector<std::vector<double>> losses;
  for (const Method& method : methods) {
    progress(losses.size(), methods.size());
    losses.push_back(losses_of(method, rounds));
    for (const std::uint64_t step : at) {
      Measured one{.method = method.name,
                   .form = method.form,
                   .workers = kWorkers,
                   .ratio = 0.5,
                   .k = 1,
                   .seed = 0,
                   .step = step,
                   .metric = "loss",
                   .value = losses.back()[step]};
      if (method.name == "dense") one.ratio = 1, one.k = 2;
      if (method.name == "regtopk") one.mu = mu;
      result.measured.push_back(one);
    }
  }
  Table table({"step", "dense", "Top-1", "RegTop-1 (a)", "RegTop-1 (b)"});
  for (const std::uint64_t step : at) {
    table.add({fmt::format("{}", step), fixed(losses[0][step], 5), fixed(losses[1][step], 5), fixed(losses[2][step], 5),
               fixed(losses[3][step], 5)});
  }
  result.table = "loss\n" + table.text();
  const double start = losses[1][0];
  const bool stalls = std::abs(losses[1][kStalls] - start) < kUnmoved;
  const bool descends = losses[2][kArrived] < kLikeDense * losses[0][kArrived];
  result.verdict = stalls && descends ? Verdict::holds : Verdict::does_not_hold;
  result.reason = fmt::format(
      "after {} steps Top-1 is at {} of {} at the start; after {} RegTop-1 (a) is at {}, (b) at {}, dense at {}",
      kStalls, fixed(losses[1][kStalls], 5), fixed(start, 5), kArrived, fixed(losses[2][kArrived], 5),
      fixed(losses[3][kArrived], 5), fixed(losses[0][kArrived], 5));
  return result;
}

}  // namespace sparsewire::reproduce
