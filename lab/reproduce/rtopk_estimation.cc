// The statistical model behind rTop-k: each node holds sparse bits and may send k bits to a server, which estimates the
// means of the bits. What is measured is the risk of that estimate.
//
// Barnes, Inan, Isik, Ozgur, rTop-k, 2020: node i of n holds independent bits with means theta, sum theta = s, and
// sends a random subset of its ones: the r largest entries are its r ones, and m of them are drawn, which is what
// the sparsifier `rtopk` does. It also sends the number of its ones, so that the server can make its estimate unbiased.
// Predicted: E||estimate - theta||^2 of order max(s/n, s^2 log d/(n k)).
//
// The risk of this scheme can be computed: each measured one is compared with the exact one, and the growth in k, s and
// n with the predicted one. Random-k sends as many positions, drawn without a look at the bits.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "data/random.h"
#include "reproduce/reproduction.h"
#include "reproduce/table.h"
#include "sparsewire/sifter.h"

namespace sparsewire::reproduce {
namespace {

// Measured risks are means over repetitions, whose exact standard error is known. Of some hundred settings one is
// farther off than this by chance in a few runs of a hundred.
constexpr double kStandardErrors = 4;
// A slope may differ from the predicted one by this: indices are whole, the number of ones takes bits, and terms of
// lower order are small but not 0.
constexpr double kSlopeOff = 0.2;
// A term of the predicted order dominates where it is this many times the other.
constexpr double kDominates = 4;
// For the slope in k. With fewer indices it matters that they are whole, and that the number of ones takes bits too.
constexpr std::uint64_t kFewestIndices = 16;
constexpr std::uint64_t kQuickRepetitions = 8;  // a run with fewer is not judged

struct Setting {
  const char* means;  // flat: all s/d; steep: 2s of 1/2, the others 0
  std::uint64_t dim;
  std::uint64_t nodes;
  std::uint64_t s;

  std::uint64_t carriers() const { return std::string_view(means) == "flat" ? dim : 2 * s; }  // means that are not 0
  double mean() const { return static_cast<double>(s) / static_cast<double>(carriers()); }
};

std::uint64_t bits_for(std::uint64_t values) { return static_cast<std::uint64_t>(std::bit_width(values - 1)); }

// How many indices fit into k bits, together with the number of ones.
std::uint64_t indices_in(std::uint64_t k, std::uint64_t dim) { return (k - bits_for(dim + 1)) / bits_for(dim); }

// A random subset of `count` of the ones, chosen by the sparsifier unless it is all of them.
void choose(const std::vector<float>& bits, const SparseVector& ones, std::uint64_t count, const SifterContext& context,
            SparseVector& sent) {
  if (count == ones.size()) {
    sent = ones;
    return;
  }
  const double ratio = static_cast<double>(ones.size()) / static_cast<double>(bits.size());
  Sifter(fmt::format("rtopk:k={},r_ratio={}", count, digits(ratio, 17)), "none", context).sift(bits, sent);
}

void add_scaled(const SparseVector& sent, double scale, std::vector<double>& sum) {
  for (std::size_t i = 0; i < sent.size(); ++i) sum[sent.index(i)] += scale * sent.values[i];
}

double squared_error(const Setting& setting, const std::vector<double>& sum) {
  double error = 0;
  for (std::size_t j = 0; j < sum.size(); ++j) {
    const double theta = j < setting.carriers() ? setting.mean() : 0;
    const double off = sum[j] / static_cast<double>(setting.nodes) - theta;
    error += off * off;
  }
  return error;
}

struct Errors {
  double rtopk = 0;
  double randomk = 0;
};

// The squared errors of one repetition, one for each budget; the nodes' bits are the same for all budgets.
std::vector<Errors> squared_errors(const Setting& setting, const std::vector<std::uint64_t>& budgets,
                                   std::uint64_t seed, std::uint64_t repetition) {
  const std::vector<double> zeros(setting.dim);
  std::vector<std::vector<double>> subsets(budgets.size(), zeros);
  std::vector<std::vector<double>> blind(budgets.size(), zeros);
  std::vector<float> bits(setting.dim);
  SparseVector ones;
  SparseVector sent;
  for (std::uint64_t node = 0; node < setting.nodes; ++node) {
    train::Draws draws(seed, train::Use::data, static_cast<int>(node), repetition);
    ones.clear(setting.dim);
    for (std::uint32_t j = 0; j < setting.dim; ++j) {
      bits[j] = j < setting.carriers() && draws.uniform() < setting.mean() ? 1.0F : 0.0F;
      if (bits[j] == 0) continue;
      ones.indices.push_back(j);
      ones.values.push_back(1);
    }
    const SifterContext context{.layout = setting.dim,
                                .rank = static_cast<int>(node),
                                .ranks = static_cast<int>(setting.nodes),
                                .seed = seed,
                                .first_step = repetition};
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const std::uint64_t fit = indices_in(budgets[b], setting.dim);
      const std::uint64_t count = std::min<std::uint64_t>(ones.size(), fit);
      if (count > 0) {
        choose(bits, ones, count, context, sent);
        add_scaled(sent, static_cast<double>(ones.size()) / static_cast<double>(count), subsets[b]);
      }
      Sifter(fmt::format("randomk:k={}", fit), "none", context).sift(bits, sent);
      add_scaled(sent, static_cast<double>(setting.dim) / static_cast<double>(fit), blind[b]);
    }
  }
  std::vector<Errors> errors;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    errors.push_back({squared_error(setting, subsets[b]), squared_error(setting, blind[b])});
  }
  return errors;
}

double predicted(const Setting& setting, std::uint64_t k) {
  const auto s = static_cast<double>(setting.s);
  const auto n = static_cast<double>(setting.nodes);
  return std::max(s / n, s * s * std::log2(static_cast<double>(setting.dim)) / (n * static_cast<double>(k)));
}

// The mean of of(ones) and of its square, where the number of ones is binomial.
template <class Function>
std::array<double, 2> binomial_moments(std::uint64_t trials, double p, const Function& of) {
  const auto all = static_cast<double>(trials);
  std::array<double, 2> moments{};
  for (std::uint64_t ones = 0; ones <= trials; ++ones) {
    const auto m = static_cast<double>(ones);
    const double log_probability = std::lgamma(all + 1) - std::lgamma(m + 1) - std::lgamma(all - m + 1) +
                                   m * std::log(p) + (all - m) * std::log1p(-p);
    const double value = of(m);
    moments[0] += std::exp(log_probability) * value;
    moments[1] += std::exp(log_probability) * value * value;
  }
  return moments;
}

struct Exact {
  double risk;
  double deviation;  // the standard deviation of one squared error
};

// Of the mean of n independent Y, one of each node. Y has min(M, m) entries that are M/min(M, m), where M is the number
// of the node's ones. Its mean is theta, so
//
//   risk = (E||Y||^2 - ||theta||^2)/n,  ||Y||^2 = M^2/min(M, m).
//
// For Z = Y - theta the squared error ||sum Z||^2/n^2 has the variance (Var ||Z||^2 + 2(n - 1) ||C||^2)/n^3, with C the
// covariance of Z. All means that are not 0 are equal, so ||Z||^2 depends on M only. All entries of Y add up to M: the
// vector of ones is an eigenvector of C with eigenvalue Var(M)/carriers, and all other eigenvalues are equal.
Exact exact_rtopk(const Setting& setting, std::uint64_t m) {
  const double p = setting.mean();
  const auto carriers = static_cast<double>(setting.carriers());
  const auto n = static_cast<double>(setting.nodes);
  const auto fit = static_cast<double>(m);
  const auto [trace, second] = binomial_moments(setting.carriers(), p, [&](double ones) {
    return (ones == 0 ? 0 : ones * ones / std::min(ones, fit)) - 2 * p * ones + carriers * p * p;
  });
  const double first = p * (1 - p);
  const double others = (trace - first) / (carriers - 1);
  const double covariance2 = first * first + (carriers - 1) * others * others;
  return {trace / n, std::sqrt((second - trace * trace + 2 * (n - 1) * covariance2) / (n * n * n))};
}

// Each bit is among the `positions` with probability positions/d, and then counts d/positions times.
double exact_randomk(const Setting& setting, std::uint64_t positions) {
  const auto s = static_cast<double>(setting.s);
  const double times =
      static_cast<double>(setting.dim) / static_cast<double>(std::min<std::uint64_t>(positions, setting.dim));
  return s * (times - setting.mean()) / static_cast<double>(setting.nodes);
}

// What was measured with one budget.
struct Row {
  Setting setting;
  std::uint64_t k;
  std::uint64_t indices;
  double risk;
  double randomk;
  double exact;
  double standard_error;
  double order;

  double off() const { return (risk - exact) / standard_error; }
  double over_order() const { return risk / order; }
  double exact_randomk_over() const { return exact_randomk(setting, indices) / exact; }
  // Where nodes and server draw the same positions from a seed, k bits have room for k positions.
  double exact_seeded_randomk_over() const { return exact_randomk(setting, k) / exact; }
};

std::vector<Setting> settings_of(const Options& options) {
  const auto dims = options.by_size<std::vector<std::uint64_t>>({1024}, {256, 4096}, {256, 1024, 4096});
  const auto nodes = options.by_size<std::vector<std::uint64_t>>({50, 200}, {50, 400}, {50, 400, 1600});
  std::vector<Setting> settings;
  for (const char* means : {"flat", "steep"}) {
    for (const std::uint64_t dim : dims) {
      for (const std::uint64_t n : nodes) {
        for (const std::uint64_t s : {4U, 16U, 64U, 256U}) {
          if (4 * s <= dim) settings.push_back({means, dim, n, s});
        }
      }
    }
  }
  return settings;
}

std::vector<Row> measure(const Options& options, std::uint64_t seed, std::uint64_t repetitions,
                         const Progress& progress) {
  const std::vector<std::uint64_t> budgets{32, 64, 128, 256, 512, 1024};
  const std::vector<Setting> settings = settings_of(options);
  std::vector<Row> rows;
  std::size_t done = 0;
  for (const Setting& setting : settings) {
    progress(done++, settings.size());
    std::vector<Errors> risks(budgets.size());
    for (std::uint64_t repetition = 0; repetition < repetitions; ++repetition) {
      const std::vector<Errors> errors = squared_errors(setting, budgets, seed, repetition);
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        risks[b].rtopk += errors[b].rtopk / static_cast<double>(repetitions);
        risks[b].randomk += errors[b].randomk / static_cast<double>(repetitions);
      }
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const std::uint64_t indices = indices_in(budgets[b], setting.dim);
      const Exact exact = exact_rtopk(setting, indices);
      rows.push_back({setting, budgets[b], indices, risks[b].rtopk, risks[b].randomk, exact.risk,
                      exact.deviation / std::sqrt(static_cast<double>(repetitions)), predicted(setting, budgets[b])});
    }
  }
  return rows;
}

// How the risk grows: d log(risk) / d log(x), for x one of k, s, n, in the settings where one term dominates.
struct Slope {
  const char* term;
  const char* in;
  double predicted;
  double measured;
  double exact;
  std::size_t groups;  // of settings that differ in x only, two or more each

  bool agrees() const { return groups > 0 && std::abs(measured - predicted) <= kSlopeOff; }
};

double term_ratio(const Row& row) {
  return static_cast<double>(row.setting.s) * std::log2(static_cast<double>(row.setting.dim)) /
         static_cast<double>(row.k);
}
bool few_bits(const Row& row) { return term_ratio(row) >= kDominates; }
bool few_bits_some_indices(const Row& row) { return few_bits(row) && row.indices >= kFewestIndices; }
bool many_bits(const Row& row) { return term_ratio(row) <= 1 / kDominates; }

// Least squares with one slope for all groups. The weight of a risk is the inverse of its relative variance.
template <class Value>
double fit_slope(const std::vector<std::vector<const Row*>>& groups, const Value& value,
                 double (*log_of)(const Row& row)) {
  const auto weight_of = [](const Row& row) { return std::pow(row.exact / row.standard_error, 2); };
  double xy = 0;
  double xx = 0;
  for (const auto& group : groups) {
    double all = 0;
    double x = 0;
    double y = 0;
    for (const Row* row : group) {
      all += weight_of(*row);
      x += weight_of(*row) * log_of(*row);
      y += weight_of(*row) * std::log(value(*row));
    }
    for (const Row* row : group) {
      const double from = log_of(*row) - x / all;
      xy += weight_of(*row) * from * (std::log(value(*row)) - y / all);
      xx += weight_of(*row) * from * from;
    }
  }
  return xx > 0 ? xy / xx : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Slope> slopes_of(const std::vector<Row>& rows) {
  struct Wanted {
    const char* term;
    const char* in;
    bool (*dominates)(const Row&);
    double (*log_of)(const Row&);
    double predicted;
  };
  const auto log_k = [](const Row& row) { return std::log(static_cast<double>(row.k)); };
  const auto log_s = [](const Row& row) { return std::log(static_cast<double>(row.setting.s)); };
  const auto log_n = [](const Row& row) { return std::log(static_cast<double>(row.setting.nodes)); };
  const Wanted all[] = {
      {"few_bits", "k", few_bits_some_indices, log_k, -1},
      {"few_bits", "s", few_bits, log_s, 2},
      {"few_bits", "n", few_bits, log_n, -1},
      {"many_bits", "k", many_bits, log_k, 0},
      {"many_bits", "s", many_bits, log_s, 1},
      {"many_bits", "n", many_bits, log_n, -1},
  };
  std::vector<Slope> slopes;
  for (const Wanted& wanted : all) {
    // Everything but the one parameter.
    std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>,
             std::vector<const Row*>>
        by_rest;
    const std::string_view in = wanted.in;
    for (const Row& row : rows) {
      if (!wanted.dominates(row)) continue;
      by_rest[{row.setting.means, row.setting.dim, in == "n" ? 0 : row.setting.nodes, in == "s" ? 0 : row.setting.s,
               in == "k" ? 0 : row.k}]
          .push_back(&row);
    }
    std::vector<std::vector<const Row*>> groups;
    for (auto& [rest, group] : by_rest) {
      if (group.size() > 1) groups.push_back(std::move(group));
    }
    slopes.push_back({wanted.term, wanted.in, wanted.predicted,
                      fit_slope(
                          groups, [](const Row& row) { return row.risk; }, wanted.log_of),
                      fit_slope(
                          groups, [](const Row& row) { return row.exact; }, wanted.log_of),
                      groups.size()});
  }
  return slopes;
}

void add_numbers(const Row& row, std::uint64_t seed, std::vector<Measured>& measured) {
  Measured one{.method = "rtopk",
               .problem = row.setting.means,
               .workers = row.setting.nodes,
               .dim = row.setting.dim,
               .k = row.k,
               .s = row.setting.s,
               .seed = seed};
  const auto add = [&](const char* metric, double value) {
    one.metric = metric;
    one.value = value;
    measured.push_back(one);
  };
  add("risk", row.risk);
  add("exact_risk", row.exact);
  add("risk_over_exact", row.risk / row.exact);
  add("standard_error", row.standard_error);
  add("predicted_order", row.order);
  add("risk_over_order", row.over_order());
  one.method = "randomk";
  add("risk", row.randomk);
  add("exact_risk", exact_randomk(row.setting, row.indices));
}

std::string tables_of(const std::vector<Row>& rows, const std::vector<Slope>& slopes) {
  Table table(
      {"means", "d", "n", "s", "k", "fit", "risk", "exact", "risk/exact", "4 s.e.", "risk/order", "Random-k", "exact"});
  for (const Row& row : rows) {
    table.add({row.setting.means, fmt::format("{}", row.setting.dim), fmt::format("{}", row.setting.nodes),
               fmt::format("{}", row.setting.s), fmt::format("{}", row.k), fmt::format("{}", row.indices),
               digits(row.risk, 4), digits(row.exact, 4), fixed(row.risk / row.exact, 3),
               fixed(kStandardErrors * row.standard_error / row.exact, 3), fixed(row.over_order(), 3),
               digits(row.randomk, 3), digits(exact_randomk(row.setting, row.indices), 3)});
  }
  Table growth({"where", "slope in", "predicted", "measured", "exact"});
  for (const Slope& slope : slopes) {
    growth.add({std::string_view(slope.term) == "few_bits" ? "s log d >= 4k" : "s log d <= k/4", slope.in,
                fixed(slope.predicted, 0), fixed(slope.measured, 3), fixed(slope.exact, 3)});
  }
  return table.text() + '\n' + growth.text();
}

template <class Value>
std::pair<double, double> range_of(const std::vector<Row>& rows, const Value& value) {
  std::pair<double, double> range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Row& row : rows) {
    range.first = std::min(range.first, value(row));
    range.second = std::max(range.second, value(row));
  }
  return range;
}

std::vector<std::string> conditions_of(const std::vector<Row>& rows) {
  const auto order = range_of(rows, [](const Row& row) { return row.over_order(); });
  const auto blind = range_of(rows, [](const Row& row) { return row.exact_randomk_over(); });
  const auto seeded = range_of(rows, [](const Row& row) { return row.exact_seeded_randomk_over(); });
  const auto lower = std::count_if(rows.begin(), rows.end(),
                                   [](const Row& row) { return row.exact_seeded_randomk_over() < 1 - 1e-9; });
  return {
      fmt::format("the constant: the risk is {} to {} times the predicted order; it is largest where few indices fit",
                  fixed(order.first, 2), fixed(order.second, 2)),
      fmt::format("Random-k with as many positions, drawn from all d, has {} to {} times the exact risk",
                  fixed(blind.first, 1), fixed(blind.second, 1)),
      fmt::format("Random-k whose positions come from a seed and cost no bits, k of them, has {} to {} times the exact "
                  "risk: it is lower in {} of {} settings",
                  fixed(seeded.first, 2), fixed(seeded.second, 1), lower, rows.size()),
  };
}

}  // namespace

Result reproduce_rtopk_estimation(const Options& options, const Progress& progress) {
  const std::uint64_t repetitions = options.rounds.value_or(options.by_size<std::uint64_t>(kQuickRepetitions, 20, 10));
  const std::uint64_t seed = options.seed.value_or(0);
  const std::vector<Row> rows = measure(options, seed, repetitions, progress);
  const std::vector<Slope> slopes = slopes_of(rows);

  Result result;
  for (const Row& row : rows) add_numbers(row, seed, result.measured);
  for (const Slope& slope : slopes) {
    for (const auto& [metric, value] :
         {std::pair{"slope", slope.measured}, {"exact_slope", slope.exact}, {"predicted_slope", slope.predicted}}) {
      result.measured.push_back({.method = "rtopk",
                                 .seed = seed,
                                 .metric = fmt::format("{}_in_{}_{}", metric, slope.in, slope.term),
                                 .value = value});
    }
  }
  const auto off = range_of(rows, [](const Row& row) { return std::abs(row.off()); });
  const auto ratio = range_of(rows, [](const Row& row) { return row.risk / row.exact; });
  const bool exact = off.second <= kStandardErrors;
  const auto agree = std::count_if(slopes.begin(), slopes.end(), [](const Slope& slope) { return slope.agrees(); });
  const bool all_agree = static_cast<std::size_t>(agree) == slopes.size();
  double farthest = 0;
  for (const Slope& slope : slopes) farthest = std::max(farthest, std::abs(slope.measured - slope.predicted));
  result.table = tables_of(rows, slopes);
  result.verdict = !exact || agree == 0 ? Verdict::does_not_hold : all_agree ? Verdict::holds : Verdict::partly;
  result.reason = fmt::format(
      "the risk is {} to {} times the exact one, at most {} standard errors off, in {} settings, {} repetitions each; "
      "{} of {} slopes are as predicted, within {} (the farthest is {} off)",
      fixed(ratio.first, 2), fixed(ratio.second, 2), fixed(off.second, 1), rows.size(), repetitions, agree,
      slopes.size(), kSlopeOff, fixed(farthest, 2));
  result.conditions = conditions_of(rows);
  withhold_if_short(repetitions, kQuickRepetitions, result);
  return result;
}

}  // namespace sparsewire::reproduce
