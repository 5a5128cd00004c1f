// The statistical model behind rTop-k: each node holds sparse bits and may send k bits to a server, which estimates the
// means of the bits. What is measured is the risk of that estimate.
//
// Barnes, Inan, Isik, Ozgur, rTop-k, 2020: node i of n holds independent bits with means theta, sum theta = s, and
// sends a random subset of its ones: the r largest entries are its r ones, and k' of them are drawn, which is what
// the sparsifier `rtopk` does. It also sends the number of its ones, so that the server can make its estimate unbiased.
// Predicted: E||estimate - theta||^2 of order max(s/n, s^2 log d/(n k)).
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "reproduce/reproduction.h"
#include "reproduce/table.h"
#include "sparsewire/sifter.h"
#include "train/random.h"

namespace sparsewire::reproduce {
namespace {

// The measured risk may be this many times above or below the predicted order.
constexpr double kBand = 4;

struct Setting {
  const char* means;  // flat: all s/d; steep: 2s of 1/2, the others 0
  std::uint64_t dim;
  std::uint64_t nodes;
  std::uint64_t s;
};

std::uint64_t bits_for(std::uint64_t values) { return static_cast<std::uint64_t>(std::bit_width(values - 1)); }

// How many indices fit into k bits, together with the number of ones.
std::uint64_t indices_in(std::uint64_t k, std::uint64_t dim) { return (k - bits_for(dim + 1)) / bits_for(dim); }

std::vector<double> means_of(const Setting& setting) {
  const bool flat = std::string_view(setting.means) == "flat";
  std::vector<double> theta(setting.dim);
  const auto carriers = static_cast<std::ptrdiff_t>(flat ? setting.dim : 2 * setting.s);
  std::fill(theta.begin(), theta.begin() + carriers, static_cast<double>(setting.s) / static_cast<double>(carriers));
  return theta;
}

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

// The squared errors of one repetition, one for each budget; the nodes' bits are the same for all budgets.
std::vector<double> squared_errors(const Setting& setting, const std::vector<std::uint64_t>& budgets,
                                   std::uint64_t seed, std::uint64_t repetition) {
  const std::vector<double> theta = means_of(setting);
  std::vector<std::vector<double>> estimates(budgets.size(), std::vector<double>(setting.dim));
  std::vector<float> bits(setting.dim);
  SparseVector ones;
  SparseVector sent;
  for (std::uint64_t node = 0; node < setting.nodes; ++node) {
    train::Draws draws(seed, train::Use::data, static_cast<int>(node), repetition);
    ones.clear(setting.dim);
    for (std::uint32_t j = 0; j < setting.dim; ++j) {
      bits[j] = theta[j] > 0 && draws.uniform() < theta[j] ? 1.0F : 0.0F;
      if (bits[j] == 0) continue;
      ones.indices.push_back(j);
      ones.values.push_back(1);
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const std::uint64_t count = std::min<std::uint64_t>(ones.size(), indices_in(budgets[b], setting.dim));
      if (count == 0) continue;
      choose(bits, ones, count,
             {.layout = setting.dim,
              .rank = static_cast<int>(node),
              .ranks = static_cast<int>(setting.nodes),
              .seed = seed,
              .first_step = repetition},
             sent);
      const double scale = static_cast<double>(ones.size()) / static_cast<double>(count);
      for (std::size_t i = 0; i < sent.size(); ++i) estimates[b][sent.index(i)] += scale * sent.values[i];
    }
  }
  std::vector<double> errors(budgets.size());
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    for (std::size_t j = 0; j < theta.size(); ++j) {
      const double off = estimates[b][j] / static_cast<double>(setting.nodes) - theta[j];
      errors[b] += off * off;
    }
  }
  return errors;
}

double predicted(const Setting& setting, std::uint64_t k) {
  const auto s = static_cast<double>(setting.s);
  const auto n = static_cast<double>(setting.nodes);
  return std::max(s / n, s * s * std::log2(static_cast<double>(setting.dim)) / (n * static_cast<double>(k)));
}

std::vector<Setting> settings_of(const Options& options) {
  const auto dims = options.by_size<std::vector<std::uint64_t>>({1024}, {256, 4096}, {256, 1024, 4096, 16384});
  const auto nodes = options.by_size<std::vector<std::uint64_t>>({50, 200}, {50, 400, 1600}, {50, 400, 1600, 6400});
  std::vector<Setting> settings;
  for (const char* means : {"flat", "steep"}) {
    for (const std::uint64_t dim : dims) {
      for (const std::uint64_t n : nodes) {
        for (const unsigned s : {4U, 16U, 64U}) settings.push_back({means, dim, n, s});
      }
    }
  }
  return settings;
}

}  // namespace

Result reproduce_rtopk_estimation(const Options& options, const Progress& progress) {
  const std::vector<std::uint64_t> budgets{32, 64, 128, 256, 512, 1024};
  const std::uint64_t repetitions = options.rounds.value_or(options.by_size<std::uint64_t>(12, 20, 40));
  const std::uint64_t seed = options.seed.value_or(0);
  const std::vector<Setting> settings = settings_of(options);

  Result result;
  Table table({"means", "d", "n", "s", "k", "indices", "risk", "predicted", "risk/predicted"});
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  std::size_t done = 0;
  for (const Setting& setting : settings) {
    progress(done++, settings.size());
    std::vector<double> risks(budgets.size());
    for (std::uint64_t repetition = 0; repetition < repetitions; ++repetition) {
      const std::vector<double> errors = squared_errors(setting, budgets, seed, repetition);
      for (std::size_t b = 0; b < budgets.size(); ++b) risks[b] += errors[b] / static_cast<double>(repetitions);
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const double order = predicted(setting, budgets[b]);
      const double ratio = risks[b] / order;
      low = std::min(low, ratio);
      high = std::max(high, ratio);
      table.add({setting.means, fmt::format("{}", setting.dim), fmt::format("{}", setting.nodes),
                 fmt::format("{}", setting.s), fmt::format("{}", budgets[b]),
                 fmt::format("{}", indices_in(budgets[b], setting.dim)), digits(risks[b], 4), digits(order, 4),
                 fixed(ratio, 3)});
      Measured one{.method = "rtopk",
                   .problem = setting.means,
                   .workers = setting.nodes,
                   .dim = setting.dim,
                   .k = budgets[b],
                   .s = setting.s,
                   .seed = seed,
                   .metric = "risk",
                   .value = risks[b]};
      result.measured.push_back(one);
      one.metric = "predicted_order";
      one.value = order;
      result.measured.push_back(one);
      one.metric = "risk_over_order";
      one.value = ratio;
      result.measured.push_back(one);
    }
  }
  result.table = table.text();
  result.verdict = low > 1 / kBand && high < kBand ? Verdict::holds : Verdict::does_not_hold;
  result.reason = fmt::format("the risk is {} to {} times the predicted order in all {} settings, {} repetitions each",
                              fixed(low, 2), fixed(high, 2), settings.size() * budgets.size(), repetitions);
  return result;
}

}  // namespace sparsewire::reproduce
