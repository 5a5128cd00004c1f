// Each worker draws how often it wants each label from a Dirichlet distribution: the smaller alpha, the fewer labels it
// sees. The number of samples is given, so no worker is left without any.
//
// Hsu, Qi, Brown, Measuring the effects of non-identical data distribution for federated visual classification, 2019.
// The parameter of a label is alpha times its share of the samples times the number of labels: alpha for each label
// where all are equally frequent. So the workers together want the labels as often as there are samples of them.
#include <algorithm>
#include <cmath>

#include "data/hold_back.h"
#include "data/random.h"
#include "data/split.h"
#include "sparsewire/support/portable_math.h"

namespace sparsewire::train {
namespace {

// The logarithm of a draw from a gamma distribution: with a small shape the draw itself would often be 0.
// Marsaglia, Tsang, A simple method for generating gamma variables, 2000.
double log_gamma_draw(Draws& draws, double shape) {
  if (shape < 1) {
    const double more = log_gamma_draw(draws, shape + 1);
    return more + portable_log(1 - draws.uniform()) / shape;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draws.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (portable_log(1 - draws.uniform()) < x * x / 2 + d - d * v + d * portable_log(v)) return portable_log(d * v);
  }
}

// Shares that add up to 1, or nearly so.
std::vector<double> dirichlet_draw(Draws& draws, const std::vector<double>& parameters) {
  std::vector<double> logs;
  for (const double parameter : parameters) logs.push_back(log_gamma_draw(draws, parameter));
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (double& one : logs) sum += one = portable_exp(one - most);
  for (double& one : logs) one /= sum;
  return logs;
}

// One of the labels of which samples are left, as likely as its share. Where all those have the share 0, the one with
// the most samples left.
std::size_t draw_label(Draws& draws, const std::vector<double>& shares,
                       const std::vector<std::vector<std::uint32_t>>& left) {
  double sum = 0;
  for (std::size_t label = 0; label < left.size(); ++label) sum += left[label].empty() ? 0 : shares[label];
  double rest = draws.uniform() * sum;
  std::size_t last = left.size();
  for (std::size_t label = 0; label < left.size(); ++label) {
    if (left[label].empty() || shares[label] == 0) continue;
    last = label;
    rest -= shares[label];
    if (rest < 0) break;
  }
  if (last < left.size()) return last;
  return static_cast<std::size_t>(
      std::max_element(left.begin(), left.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); }) -
      left.begin());
}

// The samples of each label, in a random order.
std::vector<std::vector<std::uint32_t>> by_label(const SplitContext& context) {
  Draws draws(context.seed, Use::split);
  std::vector<std::vector<std::uint32_t>> samples;
  for (const std::uint32_t sample : shuffled(static_cast<std::uint32_t>(context.labels.size()), draws)) {
    const std::uint32_t label = context.labels[sample];
    if (label >= samples.size()) samples.resize(label + 1);
    samples[label].push_back(sample);
  }
  std::erase_if(samples, [](const auto& one) { return one.empty(); });
  return samples;
}

}  // namespace

WorkerSamples split_dirichlet(Spec& spec, const SplitContext& context) {
  const double alpha = spec.number("alpha", {.min = 1e-6, .max = 1e6}).value_or(0.1);
  const std::size_t all = context.labels.size();
  const std::vector<std::size_t> sizes = read_sizes(spec, all, context.workers);
  std::vector<std::vector<std::uint32_t>> left = by_label(context);
  std::vector<double> parameters;
  for (const auto& samples : left) {
    const double share = static_cast<double>(samples.size()) / static_cast<double>(all);
    parameters.push_back(alpha * share * static_cast<double>(left.size()));
  }
  const auto workers = static_cast<std::size_t>(context.workers);
  std::vector<Draws> draws;
  std::vector<std::vector<double>> shares;
  for (int worker = 0; worker < context.workers; ++worker) {
    draws.emplace_back(context.seed, Use::split, worker, 1);
    shares.push_back(dirichlet_draw(draws.back(), parameters));
  }
  // In turns, so that those who come late do not get only what the others left.
  std::vector<std::vector<std::uint32_t>> lists(workers);
  for (std::size_t round = 0, dealt = 0; dealt < all; ++round) {
    for (std::size_t worker = 0; worker < workers; ++worker) {
      if (round >= sizes[worker]) continue;
      std::vector<std::uint32_t>& samples = left[draw_label(draws[worker], shares[worker], left)];
      lists[worker].push_back(samples.back());
      samples.pop_back();
      ++dealt;
    }
  }
  return WorkerSamples(std::move(lists));
}

}  // namespace sparsewire::train
