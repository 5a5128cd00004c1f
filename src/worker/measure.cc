// How far the update of a step is from the best one: two numbers that proofs of convergence are about.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "core/number_types.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/float_mode.h"
#include "worker/parts.h"

namespace sparsewire {
namespace {

// The k entries with the largest magnitudes, of equal ones those with the lower index.
std::vector<bool> largest(const std::vector<double>& numbers, std::uint64_t k) {
  std::vector<std::uint32_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(k, order.size()));
  const auto is_before = [&](std::uint32_t a, std::uint32_t b) {
    const double x = std::abs(numbers[a]);
    const double y = std::abs(numbers[b]);
    return x != y ? x > y : a < b;
  };
  if (end != order.end()) std::nth_element(order.begin(), end, order.end(), is_before);
  std::vector<bool> chosen(numbers.size());
  for (auto at = order.begin(); at != end; ++at) chosen[*at] = true;
  return chosen;
}

float number_at(const Gradient& gradient, std::size_t i) {
  if (gradient.type == NumberType::f32) return static_cast<const float*>(gradient.data)[i];
  return widened(gradient.type, static_cast<const std::uint16_t*>(gradient.data)[i]);
}

// 0 where there is nothing to compare.
double quotient(double numerator2, double denominator2) {
  return numerator2 == 0 ? 0 : std::sqrt(numerator2 / denominator2);
}

}  // namespace

// What was owed before the update is what is owed now, and the update: so memories need not be kept from before. Where
// servers drop entries, it is what the workers owe now, and what they sent.
CompressionError Worker::measure_compression() {
  const StandardFloatMode mode;
  Parts& p = *parts_;
  p.check_between_steps("measure_compression");
  if (!p.can_take_back) throw UsageError("[worker] measure_compression: there is no finished step to measure");
  const Feedback& feedback = p.sifter.feedback();
  if (feedback.kind != Feedback::Kind::ef) {
    throw UsageError("[worker] measure_compression needs feedback ef: without it nothing is owed");
  }
  if (p.config.average != Average::all) {
    throw UsageError("[worker] measure_compression needs average all: what is owed is a sum over all workers");
  }
  const std::size_t dim = p.layout.dim();
  const float weight = this->weight();
  p.bring_update();

  std::vector<double> served(dim);
  add_server_memory(served);
  std::vector<float> owed = p.sifter.memory();
  for (std::size_t i = 0; i < dim; ++i) owed[i] = weight * owed[i] + static_cast<float>(served[i]);
  const float scale = p.options.unscale * (feedback.scale_by_lr ? p.options.lr : 1.0F);
  std::vector<float> gradient(dim);
  std::vector<float> copy;  // of a gradient on a device
  Gradient here = p.gradient;
  if (here.device.kind != Device::host) {
    copy.resize(dim);
    p.arrays_of(here.device).read(here, copy.data());
    here = {copy.data(), here.type, here.size};
  }
  for (std::size_t i = 0; i < dim; ++i) gradient[i] = weight * (scale * number_at(here, i));
  p.transport.all_reduce_sum(owed);
  p.transport.all_reduce_sum(gradient);

  std::vector<double> before(owed.begin(), owed.end());
  const bool is_dropped = !p.config.downlink.empty() && p.config.downlink_feedback == "none";
  if (is_dropped) {
    std::vector<float> sent(dim);
    for (std::size_t i = 0; i < p.sent.size(); ++i) sent[p.sent.index(i)] = weight * p.sent.values[i];
    p.transport.all_reduce_sum(sent);
    for (std::size_t i = 0; i < dim; ++i) before[i] += static_cast<double>(sent[i]);
  }
  std::vector<double> update(dim);
  for (std::size_t i = 0; i < p.total.size(); ++i) update[p.total.index(i)] = static_cast<double>(p.total.values[i]);
  for (std::size_t i = 0; i < dim && !is_dropped; ++i) before[i] += update[i];
  CompressionError error;
  const double mean = static_cast<double>(p.outcome.entries) / p.transport.size();
  error.k =
      p.config.downlink.empty() ? static_cast<std::uint64_t>(std::max(1.0, std::floor(mean + 0.5))) : p.total.size();
  const std::vector<bool> chosen = largest(before, error.k);
  double missed2 = 0;  // ||Top_k(a) - update||^2
  double before2 = 0;
  double rest2 = 0;  // ||a - Top_k(a)||^2
  double gradient2 = 0;
  for (std::size_t i = 0; i < dim; ++i) {
    const double missed = (chosen[i] ? before[i] : 0) - update[i];
    const double square = before[i] * before[i];
    missed2 += missed * missed;
    before2 += square;
    if (!chosen[i]) rest2 += square;
    error.owed_norm2 += static_cast<double>(owed[i]) * static_cast<double>(owed[i]);
    gradient2 += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  }
  error.xi = quotient(missed2, gradient2);
  error.gamma = quotient(rest2, before2);
  return error;
}

}  // namespace sparsewire
