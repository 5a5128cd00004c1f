#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace sparsewire::study {
namespace {

double integer_power(double base, std::size_t exponent) {
  double power = 1;
  for (double square = base; exponent > 0; exponent /= 2, square *= square) {
    if (exponent % 2 == 1) power *= square;
  }
  return power;
}

// The beta function B(degrees/2, 1/2), from B(1/2, 1/2) or B(1, 1/2) upwards.
double beta_of_half(std::size_t degrees) {
  double value = degrees % 2 == 1 ? std::numbers::pi : 2;
  for (std::size_t at = degrees % 2 == 1 ? 1 : 2; at < degrees; at += 2) {
    value *= static_cast<double>(at) / static_cast<double>(at + 1);
  }
  return value;
}

// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method. It converges fast where
// x < (a + 1)/(a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr double kClose = 1e-16;
  constexpr int kMost = 10'000;
  const auto kept_from_0 = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / kept_from_0(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int i = 1; i <= kMost; ++i) {
    const double m = i;
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / kept_from_0(1 + even * d);
    c = kept_from_0(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / kept_from_0(1 + odd * d);
    c = kept_from_0(1 + odd / c);
    value *= d * c;
    if (std::fabs(d * c - 1) <= kClose) break;
  }
  return value;
}

}  // namespace

double mean(std::span<const double> numbers) {
  // From the first: equal numbers have that mean exactly, and no spread.
  double sum = 0;
  for (const double one : numbers) sum += one - numbers[0];
  return numbers[0] + sum / static_cast<double>(numbers.size());
}

std::optional<double> standard_deviation(std::span<const double> numbers) {
  if (numbers.size() < 2) return std::nullopt;
  const double middle = mean(numbers);
  double sum = 0;
  for (const double one : numbers) sum += (one - middle) * (one - middle);
  return std::sqrt(sum / static_cast<double>(numbers.size() - 1));
}

std::optional<Interval> confidence_interval(std::span<const double> numbers) {
  const std::optional<double> deviation = standard_deviation(numbers);
  if (!deviation) return std::nullopt;
  const double half = t_975(numbers.size() - 1) * *deviation / std::sqrt(static_cast<double>(numbers.size()));
  const double middle = mean(numbers);
  return Interval{.low = middle - half, .high = middle + half};
}

std::optional<double> t_test(std::span<const double> numbers) {
  const std::optional<double> deviation = standard_deviation(numbers);
  if (!deviation) return std::nullopt;
  const double middle = mean(numbers);
  if (*deviation == 0) return middle == 0 ? 1 : 0;
  return two_sided_p(middle / (*deviation / std::sqrt(static_cast<double>(numbers.size()))), numbers.size() - 1);
}

double two_sided_p(double t, std::size_t degrees) {
  // The regularised incomplete beta function I_x(degrees/2, 1/2) at x = degrees/(degrees + t^2).
  const auto v = static_cast<double>(degrees);
  const double a = v / 2;
  const double b = 0.5;
  const double t2 = t * t;
  if (t2 == 0) return 1;
  if (!std::isfinite(t2)) return 0;
  const double x = v / (v + t2);
  const double rest = t2 / (v + t2);  // 1 - x, without cancellation
  const double factor = integer_power(std::sqrt(x), degrees) * std::sqrt(rest) / beta_of_half(degrees);
  if (x < (a + 1) / (a + b + 2)) return std::min(1.0, factor * beta_fraction(a, b, x) / a);
  return std::clamp(1 - factor * beta_fraction(b, a, rest) / b, 0.0, 1.0);
}

double t_975(std::size_t degrees) {
  double low = 1.9;  // the quantile .975 is 12.7 for one degree, and falls to 1.96
  double high = 12.8;
  for (;;) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return middle;
    (two_sided_p(middle, degrees) > 0.05 ? low : high) = middle;
  }
}

std::vector<std::optional<double>> holm(std::span<const std::optional<double>> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return p[i].value_or(2) < p[j].value_or(2); });
  std::vector<std::optional<double>> adjusted(p.size());
  double most = 0;
  for (std::size_t i = 0; i < order.size() && p[order[i]]; ++i) {
    most = std::max(most, std::min(1.0, static_cast<double>(p.size() - i) * *p[order[i]]));
    adjusted[order[i]] = most;
  }
  return adjusted;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const double upper = numbers[numbers.size() / 2];
  if (numbers.size() % 2 == 1) return upper;
  const double lower = numbers[numbers.size() / 2 - 1];
  // Infinity minus itself would be NaN.
  return lower == upper || std::isinf(lower) ? lower : lower + (upper - lower) / 2;
}

std::optional<std::size_t> first_to_reach(std::span<const double> numbers, double target) {
  for (std::size_t end = kTrailing; end <= numbers.size(); ++end) {
    if (mean(numbers.subspan(end - kTrailing, kTrailing)) <= target) return end - 1;
  }
  return std::nullopt;
}

std::optional<double> interpolate(std::span<const double> xs, std::span<const double> ys, double x) {
  const auto above = static_cast<std::size_t>(std::upper_bound(xs.begin(), xs.end(), x) - xs.begin());
  if (above == 0) return std::nullopt;
  if (xs[above - 1] == x) return ys[above - 1];
  if (above == xs.size()) return std::nullopt;
  const double part = (x - xs[above - 1]) / (xs[above] - xs[above - 1]);
  return ys[above - 1] + part * (ys[above] - ys[above - 1]);
}

}  // namespace sparsewire::study
