// Linear regression on workers whose data tell different stories: where Top-k and RegTop-k end, by the ratio.
//
// Bereyhi, Liang, Boudreau, Afana, Regularized Top-k, 2025: 20 workers, 100 weights, lr 0.01, 2500 rounds, mu 4.
// Weights and gradients are computed in double here and travel as floats: where the dense run ends is how far that lets
// anybody go, the float32 floor.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/text.h"
#include "reproduce/reproduction.h"
#include "reproduce/rounds.h"
#include "reproduce/table.h"
#include "train/linreg.h"

namespace sparsewire::reproduce {
namespace {

constexpr int kWorkers = 20;
// log10 of the squared distance. Top-k ends between -2 and -4; RegTop-k that arrives stops between -7 and -8, where its
// float memories do.
constexpr double kArrived = -6;
constexpr double kFrom = 0.6;    // the ratio from which on form a has to arrive
constexpr double kNotYet = 0.4;  // and up to which it does not

struct Method {
  std::string name;
  std::optional<std::string> form;
};
const std::vector<Method>& methods() {
  static const std::vector<Method> all{{"topk", {}}, {"regtopk", "a"}, {"regtopk", "b"}};
  return all;
}

std::string spec_of(const Method& method, double ratio, double mu) {
  const std::string ratio_text = text(":ratio=", digits(ratio, 17));
  if (!method.form) return method.name + ratio_text;
  return text(method.name, ratio_text, ",mu=", digits(mu, 17), ",form=", *method.form);
}

struct Ends {
  double half_way = 0;
  double end = 0;
};

// log10 ||w - w*||^2 after half of the rounds and after all.
Ends ends_of(const std::string& sparsifier, train::Linreg& problem, std::uint64_t rounds, std::uint64_t seed) {
  const Plan plan{.worker = {.sparsifier = sparsifier, .exchange = "server", .seed = seed},
                  .workers = kWorkers,
                  .rounds = rounds,
                  .lr = 0.01};
  Ends ends;
  run(plan, problem, [&](const Round& round) {
    if (round.step != rounds / 2 && round.step != rounds) return;
    double distance2 = 0;
    for (std::size_t i = 0; i < round.weights.size(); ++i) {
      distance2 += (round.weights[i] - problem.optimum()[i]) * (round.weights[i] - problem.optimum()[i]);
    }
    (round.step == rounds ? ends.end : ends.half_way) = std::log10(distance2);
  });
  return ends;
}

// Nothing: the claim says nothing of it.
std::optional<bool> should_arrive(const Method& method, double ratio) {
  if (ratio == 1) return true;  // everything is sent
  if (!method.form || *method.form == "b") return false;
  if (ratio >= kFrom) return true;
  if (ratio <= kNotYet) return false;
  return std::nullopt;
}

}  // namespace

Result reproduce_regtopk_linreg(const Options& options, const Progress& progress) {
  using Ratios = std::vector<double>;
  const Ratios ratios = options.ratio.value_or(
      options.by_size<Ratios>({0.4, 0.6}, {0.2, 0.4, 0.5, 0.6, 0.8},
                              {0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 0.99}));
  const double mu = options.mu.value_or(4);
  const std::uint64_t rounds = options.rounds.value_or(options.by_size<std::uint64_t>(1000, 2500, 2500));
  const std::uint64_t first = options.seed.value_or(0);
  const std::uint64_t seeds = options.seeds.value_or(options.by_size<std::uint64_t>(1, 5, 5));

  struct Row {
    Method method;
    std::optional<double> ratio;
    std::vector<Ends> ends;
  };
  std::vector<Row> rows{{{"dense", {}}, {}, {}}};
  for (const double ratio : ratios) {
    for (const Method& method : methods()) rows.push_back({method, ratio, {}});
  }
  std::size_t done = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const auto problem = train::make_linreg({}, {.workers = kWorkers, .seed = seed, .data = {}});
    for (Row& row : rows) {
      progress(done++, rows.size() * seeds);
      const std::string spec = row.ratio ? spec_of(row.method, *row.ratio, mu) : "dense";
      row.ends.push_back(ends_of(spec, *problem, rounds, seed));
    }
  }

  Result result;
  Table table({"method", "ratio", "half-way", "at the end", "worst seed", "arrived"});
  bool as_claimed = true;
  double floor = 0;
  std::string against;
  for (const Row& row : rows) {
    const auto n = static_cast<double>(seeds);
    double half_way = 0;
    double end = 0;
    double worst = -std::numeric_limits<double>::infinity();
    Measured one{
        .method = row.method.name, .form = row.method.form, .workers = kWorkers, .ratio = row.ratio.value_or(1)};
    if (row.method.form) one.mu = mu;
    one.step = rounds;
    std::size_t arrived = 0;
    for (std::size_t i = 0; i < row.ends.size(); ++i) {
      half_way += row.ends[i].half_way / n;
      end += row.ends[i].end / n;
      worst = std::max(worst, row.ends[i].end);
      arrived += row.ends[i].end < kArrived ? 1U : 0U;
      one.seed = first + i;
      one.metric = "log10_distance";
      one.value = row.ends[i].end;
      result.measured.push_back(one);
    }
    one.seed.reset();
    one.metric = "mean_log10_distance";
    one.value = end;
    result.measured.push_back(one);
    one.step = rounds / 2;
    one.value = half_way;
    result.measured.push_back(one);
    const std::string title = row.method.form ? text(row.method.name, " (", *row.method.form, ")") : row.method.name;
    table.add({title, row.ratio ? digits(*row.ratio) : "1", fixed(half_way, 2), fixed(end, 2), fixed(worst, 2),
               text(arrived, " of ", seeds)});
    if (!row.ratio) {
      floor = end;
      as_claimed = arrived == seeds;
      continue;
    }
    const auto wanted = should_arrive(row.method, *row.ratio);
    if (wanted && arrived != (*wanted ? seeds : 0)) {
      as_claimed = false;
      against += text(against.empty() ? "; against it: " : ", ", title, " at ", digits(*row.ratio));
    }
  }
  result.table = text("log10 of the squared distance from the optimum, means over ", seeds,
                      seeds == 1 ? " seed\n" : " seeds\n", table.text());
  result.holds = as_claimed;
  result.verdict = text("arrived is below 10^", fixed(kArrived, 0), "; the floor of float32 messages is at 10^",
                        fixed(floor, 1), ", where dense training ends", against);
  return result;
}

}  // namespace sparsewire::reproduce
