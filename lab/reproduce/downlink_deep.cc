// Top-k one way and both ways, against SGD: accuracy, and what the server sends back.
//
// Zou, De Sterck, Liu, Downlink compression improves TopK sparsification, 2022: MLPs and CNNs on MNIST and
// Fashion-MNIST, batches of 10, K = Kd = 0.1 %, memories hold lr*gradient, no momentum, 100 passes, the learning rate
// tuned for each method.
#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reproduce/deep.h"
#include "reproduce/deep_table.h"
#include "reproduce/table.h"

namespace sparsewire::reproduce {
namespace {

constexpr double kHalfAPoint = 0.005;
constexpr double kLeastShareOfN = 0.7;  // the downlink's saving; by the paper's figures it is 0.77 to 1
constexpr double kPublishedPasses = 100;
constexpr double kEnoughPasses = 49;  // to be compared with published accuracies
constexpr const char* kUplink = "topk | feedback=ef:scale=lr name=uplink";
constexpr const char* kBothWays = "topk | downlink=topk feedback=ef:scale=lr name=both_ways";
constexpr const char* kNoMemory =
    "topk | downlink=topk feedback=ef:scale=lr downlink_feedback=none name=no_server_memory";
constexpr const char* kSgd = "dense | name=sgd";

// The paper's accuracies, from the authors' result files.
struct Published {
  std::uint64_t workers;
  double uplink;
  double both_ways;
  double sgd;
};

struct Task {
  const char* mlp;
  const char* cnn;
  std::vector<double> lrs;  // around the paper's, with 20 workers
  std::vector<Published> published;
};

std::vector<double> lrs_for(const Task& task, std::uint64_t workers) {
  return workers < 50 ? task.lrs : std::vector<double>{0.1, 0.2, 0.4};
}

std::vector<Part> parts_of(const Task& task, const Options& options) {
  std::vector<Part> parts;
  const auto add = [&](std::string name, std::string title, const char* problem, std::uint64_t workers,
                       std::vector<std::string> methods) -> Part& {
    Part part = make_part(std::move(name), std::move(title), options);
    part.problem = problem;
    part.request.config.workers = workers;
    part.request.methods = std::move(methods);
    part.request.ratios = {"0.001"};
    part.request.lrs = lrs_for(task, workers);
    part.passes = options.by_size(3.0, 10.0, 20.0);
    part.tune_passes = options.by_size(1.0, 3.0, 10.0);
    parts.push_back(std::move(part));
    return parts.back();
  };
  const std::vector<std::string> three{kSgd, kUplink, kBothWays};
  const std::uint64_t few = options.workers.value_or(20);
  std::vector<std::uint64_t> sizes{few};
  if (options.size == Size::full && !options.workers) sizes.push_back(100);
  for (const std::uint64_t workers : sizes) {
    Part& table = add(fmt::format("table-{}", workers), "the paper's table", task.mlp, workers, three);
    table.passes = options.by_size(3.0, 20.0, kPublishedPasses);
    table.tune_passes = options.by_size(1.0, 5.0, 20.0);
    table.quick_passes = 3;
  }
  if (options.size == Size::quick) return parts;
  for (const std::uint64_t workers : options.workers ? std::vector{few} : std::vector<std::uint64_t>{10, 20, 50, 100}) {
    Part& part =
        add(fmt::format("union-{}", workers), "what the server sends back", task.mlp, workers, {kUplink, kBothWays});
    part.passes = 2;
    part.request.seeds = 1;
    part.request.tune_seeds = 0;
    part.request.lrs = {lrs_for(task, workers)[1]};
  }
  add("shards", "sorted by label, two shards for each worker", task.mlp, few, three).request.config.split =
      "shards:per_worker=2";
  add("cnn", "the convolutional network", task.cnn, few, three);
  add("memory", "with and without the server's memory", task.mlp, few, {kBothWays, kNoMemory});
  return parts;
}

std::string points(double accuracy) { return fmt::format("{:.2f} %", 100 * accuracy); }

// What was asserted of a part, and what was wrong.
struct Findings {
  std::size_t right = 0;
  std::size_t as_accurate = 0;  // of the right ones: both ways against another method
  std::size_t compared = 0;     // both ways with another method, whatever came out
  std::vector<std::string> wrong;

  void note(bool is_right, std::string text) { is_right ? ++right : (wrong.push_back(std::move(text)), right); }
};

void compare_with_paper(const Outcome& outcome, const Task& task, Findings& findings, Result& result) {
  const std::uint64_t workers = outcome.plan.config.workers;
  for (const Published& row : task.published) {
    if (row.workers != workers) continue;
    if (outcome.part.passes < kEnoughPasses) {
      result.conditions.push_back(fmt::format(
          "{} workers: these are accuracies after {:.3g} passes; the paper's {:.4f}, {:.4f} and {:.4f} (uplink, both "
          "ways, SGD) are after {:g}, so they are not compared",
          workers, outcome.part.passes, row.uplink, row.both_ways, row.sgd, kPublishedPasses));
      return;
    }
    for (const auto& [method, published] :
         {std::pair{"uplink", row.uplink}, {"both_ways", row.both_ways}, {"sgd", row.sgd}}) {
      const std::optional<double> mine = outcome.score(method);
      const bool is_near = mine && std::abs(*mine - published) <= kHalfAPoint;
      const std::string text =
          fmt::format("{} workers, {}: {} after {:.3g} passes, the paper has {} after {:g}", workers, method,
                      mine ? points(*mine) : "diverged", outcome.part.passes, points(published), kPublishedPasses);
      result.conditions.push_back(text);
      findings.note(is_near, text);
    }
  }
}

void judge_table(const Outcome& outcome, const Task& task, Findings& findings, Result& result) {
  const std::uint64_t workers = outcome.plan.config.workers;
  for (const char* other : {"uplink", "sgd"}) {
    const auto difference = outcome.difference("both_ways", other);
    const std::string text = fmt::format("{} workers: {}", workers, in_words("both ways", difference, other, true));
    result.conditions.push_back(text);
    const bool is_right = difference && difference->mean >= -kHalfAPoint;
    findings.note(is_right, text);
    if (difference) ++findings.compared;
    if (is_right) ++findings.as_accurate;
  }
  const auto up = entries_down(outcome, "uplink");
  const auto both = entries_down(outcome, "both_ways");
  if (up && both) {
    const double saving = *up / *both;
    const std::string text = fmt::format(
        "{} workers: the answer of the server has density {:.5f}, and is {:.1f} times "
        "smaller with a compressed downlink",
        workers, *up / static_cast<double>(outcome.plan.dim), saving);
    result.conditions.push_back(text);
    findings.note(saving >= kLeastShareOfN * static_cast<double>(workers), text);
  }
  compare_with_paper(outcome, task, findings, result);
}

// How many times smaller the server's answer is with a compressed downlink, by seed.
void add_savings(const Outcome& outcome, Result& result) {
  for (const std::uint64_t seed : outcome.plan.seeds) {
    const auto up = entries_down(outcome, "uplink", seed);
    const auto both = entries_down(outcome, "both_ways", seed);
    if (!up || !both) continue;
    result.measured.push_back({.method = "both_ways",
                               .part = outcome.part.name,
                               .problem = outcome.plan.config.problem,
                               .stage = "judging",
                               .workers = outcome.plan.config.workers,
                               .dim = outcome.plan.dim,
                               .seed = seed,
                               .metric = "downlink_saving",
                               .value = *up / *both});
  }
}

void describe(const Outcome& outcome, Result& result) {
  if (outcome.part.name.starts_with("union-")) {
    const auto up = entries_down(outcome, "uplink");
    const auto both = entries_down(outcome, "both_ways");
    if (!up || !both) return;
    result.conditions.push_back(fmt::format("{} workers, {:.3g} passes: density {:.5f}, downlink saving {:.1f}",
                                            outcome.plan.config.workers, outcome.part.passes,
                                            *up / static_cast<double>(outcome.plan.dim), *up / *both));
    return;
  }
  const bool is_memory = outcome.part.name == "memory";
  const auto difference = outcome.difference("both_ways", is_memory ? "no_server_memory" : "uplink");
  result.conditions.push_back(
      fmt::format("{}, {:.3g} passes: {}", outcome.part.name, outcome.part.passes,
                  in_words("both ways", difference, is_memory ? "without the server's memory" : "uplink", true)));
}

Result reproduce_downlink(const Task& task, const Options& options) {
  return run_parts(parts_of(task, options), options, [&](const Outcomes& outcomes, Result& result) {
    if (options.workers == 1) {
      result.reason = "one worker alone has no server, so there is nothing to compress";
      return;
    }
    Findings findings;
    double passes = 0;  // of the tables
    for (const auto& outcome : outcomes) {
      add_savings(*outcome, result);
      if (outcome->part.name.starts_with("table-")) {
        passes = outcome->part.passes;
        judge_table(*outcome, task, findings, result);
      } else {
        describe(*outcome, result);
      }
    }
    const std::size_t all = findings.right + findings.wrong.size();
    if (findings.compared == 0) return;
    result.verdict = findings.wrong.empty()     ? Verdict::holds
                     : findings.as_accurate > 0 ? Verdict::partly
                                                : Verdict::does_not_hold;
    result.reason = fmt::format("after {:.3g} passes {} of {} comparisons are as claimed", passes, findings.right, all);
    if (!findings.wrong.empty()) result.reason += "; not: " + findings.wrong.front();
  });
}

}  // namespace

Result reproduce_downlink_mnist(const Options& options_given, const Progress& /*progress*/) {
  return reproduce_downlink({.mlp = "mnist_mlp",
                             .cnn = "mnist_cnn",
                             .lrs = {0.03, 0.06, 0.12},
                             .published = {{20, .9749, .9763, .9770}, {100, .9750, .9738, .9766}}},
                            options_given);
}

Result reproduce_downlink_fashion(const Options& options_given, const Progress& /*progress*/) {
  return reproduce_downlink({.mlp = "fashion_mlp",
                             .cnn = "fashion_cnn",
                             .lrs = {0.04, 0.08, 0.16},
                             .published = {{20, .8898, .8884, .8813}, {100, .8855, .8856, .8796}}},
                            options_given);
}

}  // namespace sparsewire::reproduce
