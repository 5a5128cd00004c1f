#include "reproduce/downlink_deep_verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace sparsewire::reproduce {
namespace {

constexpr double kHalfAPoint = 0.005;
constexpr double kLeastShareOfN = 0.7;  // the downlink's saving; by the paper's figures it is 0.77 to 1
constexpr double kPublishedPasses = 100;
constexpr double kEnoughPasses = 49;  // to be compared with published accuracies

std::string points(double accuracy) { return fmt::format("{:.2f} %", 100 * accuracy); }

double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

// How many times smaller the server's answer is with a compressed downlink, by seed.
void add_savings(const Outcome& part, Result& result) {
  const std::vector<double> up = part.entries_down("uplink");
  const std::vector<double> both = part.entries_down("both_ways");
  for (std::size_t i = 0; i < up.size(); ++i) {
    if (std::isnan(up[i] / both[i])) continue;
    Measured& one = result.measured.emplace_back(part.number("both_ways", part.plan.seeds[i]));
    one.metric = "downlink_saving";
    one.value = up[i] / both[i];
  }
}

void compare_with_paper(const Outcome& table, const std::vector<Published>& published, Findings& findings,
                        Result& result) {
  const std::uint64_t workers = table.plan.config.workers;
  const auto paper =
      std::find_if(published.begin(), published.end(), [&](const Published& one) { return one.workers == workers; });
  if (paper == published.end()) return;
  if (table.passes < kEnoughPasses) {
    result.conditions.push_back(fmt::format(
        "{} workers: these are accuracies after {:.3g} passes; the paper's {:.4f}, {:.4f} and {:.4f} (uplink, both "
        "ways, SGD) are after {:g}, so they are not compared",
        workers, table.passes, paper->uplink, paper->both_ways, paper->sgd, kPublishedPasses));
    return;
  }
  for (const auto& [method, accuracy] :
       {std::pair{"uplink", paper->uplink}, {"both_ways", paper->both_ways}, {"sgd", paper->sgd}}) {
    const std::optional<double> mine = table.mean(method, table.plan.primary);
    findings.check(mine && std::abs(*mine - accuracy) <= kHalfAPoint,
                   fmt::format("{} workers, {}: {} after {:.3g} passes, the paper has {} after {:g}", workers, method,
                               mine ? points(*mine) : "diverged", table.passes, points(accuracy), kPublishedPasses));
  }
}

void judge_table(const Outcome& table, Findings& findings) {
  const std::uint64_t workers = table.plan.config.workers;
  for (const char* other : {"uplink", "sgd"}) {
    const auto difference = table.difference("both_ways", other);
    findings.compare(fmt::format("{} workers:", workers), "both ways", difference, other,
                     is_at_least(difference, -kHalfAPoint));
  }
  const double up = mean_of(table.entries_down("uplink"));
  const double saving = up / mean_of(table.entries_down("both_ways"));
  if (std::isnan(saving)) return;
  findings.check(saving >= kLeastShareOfN * static_cast<double>(workers),
                 fmt::format("{} workers: the answer of the server has density {:.5f}, and is {:.1f} times "
                             "smaller with a compressed downlink",
                             workers, up / static_cast<double>(table.plan.dim), saving));
}

void describe_union(const Outcome& part, Result& result) {
  const double up = mean_of(part.entries_down("uplink"));
  const double saving = up / mean_of(part.entries_down("both_ways"));
  if (std::isnan(saving)) return;
  result.conditions.push_back(fmt::format("{} workers, {:.3g} passes: density {:.5f}, downlink saving {:.1f}",
                                          part.plan.config.workers, part.passes,
                                          up / static_cast<double>(part.plan.dim), saving));
}

void describe(const Outcome& part, Result& result) {
  const bool is_memory = part.name == "memory";
  const auto difference = part.difference("both_ways", is_memory ? "no_server_memory" : "uplink");
  result.conditions.push_back(
      fmt::format("{}, {:.3g} passes: {}", part.name, part.passes,
                  in_words("both ways", difference, is_memory ? "without the server's memory" : "uplink")));
}

}  // namespace

void judge_downlink(const Outcomes& outcomes, const std::vector<Published>& published, Result& result) {
  Findings findings{result};
  double passes = 0;  // of the tables
  for (const auto& part : outcomes) {
    add_savings(*part, result);
    if (part->name.starts_with("table-")) {
      passes = part->passes;
      judge_table(*part, findings);
      compare_with_paper(*part, published, findings, result);
    } else {
      part->name.starts_with("union-") ? describe_union(*part, result) : describe(*part, result);
    }
  }
  findings.conclude(fmt::format("after {:.3g} passes {} of {} comparisons are as claimed{}", passes, findings.right,
                                findings.all, findings.first_wrong));
}

}  // namespace sparsewire::reproduce
