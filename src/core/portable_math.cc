#include "core/portable_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sparsewire {
namespace {

// A number as the sum of two, where the second is at most half a unit in the last place of the first.
struct Pair {
  double high = 0;
  double low = 0;
};

// Exact. REQUIRES: |a| >= |b|, or a == 0.
Pair sum_of(double a, double b) noexcept {
  const double high = a + b;
  return {high, b - (high - a)};
}

// Exact, for any a and b.
Pair any_sum_of(double a, double b) noexcept {
  const double high = a + b;
  const double b_part = high - a;
  return {high, (a - (high - b_part)) + (b - b_part)};
}

// Exact: each factor is split into two of 26 bits (Veltkamp), whose products are exact (Dekker, 1971). Not std::fma,
// which is a slow function where the processor has no instruction for it.
Pair product_of(double a, double b) noexcept {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_high = a * kSplit - (a * kSplit - a);
  const double b_high = b * kSplit - (b * kSplit - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  const double high = a * b;
  return {high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// ln 2. The first part has so few digits that its products with exponents are exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
// 1/(n + 1): divisions would take most of the time.
constexpr std::array kReciprocals = [] {
  std::array<double, 25> all{};
  for (int n = 0; n < 25; ++n) all[static_cast<unsigned>(n)] = 1.0 / (n + 1);
  return all;
}();
constexpr double one_over(int n) noexcept { return kReciprocals[static_cast<unsigned>(n - 1)]; }
constexpr Pair kTwoPi{6.283185307179586, 2.4492935982947064e-16};

// ln x. REQUIRES: x is positive and finite.
Pair log_of(double x) noexcept {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // x = m * 2^exponent, exactly
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh z with z = (m - 1)/(m + 1), |z| < 0.172; z in two parts, the second from what the division left.
  const Pair below = sum_of(m < 1 ? 1.0 : m, m < 1 ? m : 1.0);
  const double over = m - 1;  // exact
  const double z = over / below.high;
  const Pair back = product_of(z, below.high);
  const double z_low = ((over - back.high) - back.low - z * below.low) / below.high;
  const double square = z * z;
  double series = 0;  // the term of z^25 is below 2^-60 of the first
  for (int power = 25; power >= 3; power -= 2) series = square * (one_over(power) + series);
  const Pair whole = sum_of(exponent * kLn2High, 2 * z);  // both exact; where exponent is 0, so is the first
  return sum_of(whole.high, whole.low + (2 * (z_low + z * series) + exponent * kLn2Low));
}

// e^(x.high + x.low). REQUIRES: |x| < 800.
double exp_of(Pair x) noexcept {
  const double n = std::floor(x.high / (kLn2High + kLn2Low) + 0.5);
  const Pair r = any_sum_of(x.high - n * kLn2High, x.low - n * kLn2Low);  // |r| <= ln2/2; the first difference is exact
  // e^r = 1 + r + r^2/2 + ...; the 18th term is below 2^-75.
  double series = 0;
  for (int term = 18; term >= 3; --term) series = (1 + series) * (r.high * one_over(term));
  const double beyond = (1 + series) * r.high * r.high / 2;
  const Pair first = sum_of(1, r.high);
  return std::ldexp(first.high + (first.low + (r.low + r.low * r.high + beyond)), static_cast<int>(n));
}

// Taylor series. REQUIRES: |x| <= pi/4.
double sin_of(Pair x) noexcept {
  const double square = x.high * x.high;
  double series = 0;
  for (int term = 21; term >= 3; term -= 2) series = -(1 + series) * (square * (one_over(term) * one_over(term - 1)));
  return x.high + (x.low + x.high * series);
}

double cos_of(Pair x) noexcept {
  const Pair square = product_of(x.high, x.high);
  double series = 0;
  for (int term = 22; term >= 4; term -= 2)
    series = -(1 + series) * (square.high * (one_over(term) * one_over(term - 1)));
  const Pair first = sum_of(1, -square.high / 2);
  return first.high + (first.low - square.low / 2 - x.high * x.low - series * square.high / 2);
}

}  // namespace

double portable_exp(double x) noexcept {
  if (!(x < 710)) return x > 0 ? std::numeric_limits<double>::infinity() : x;
  if (x < -750) return 0;
  return exp_of({x, 0});
}

double portable_log(double x) noexcept {
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (!(x <= std::numeric_limits<double>::max())) return x;
  const Pair log = log_of(x);
  return log.high + log.low;
}

double portable_log1p(double x) noexcept {
  const Pair sum = any_sum_of(1, x);
  if (!(sum.high > 0) || !std::isfinite(sum.high)) return portable_log(sum.high);
  const Pair log = log_of(sum.high);
  return log.high + (log.low + sum.low / sum.high);
}

double portable_pow(double x, double y) noexcept {
  if (!(x <= std::numeric_limits<double>::max()) || !std::isfinite(y)) return std::pow(x, y);
  const Pair log = log_of(x);
  if (!(std::abs(log.high * y) < 745)) return portable_exp(log.high * y);
  const Pair product = product_of(log.high, y);
  return exp_of({product.high, product.low + log.low * y});
}

double portable_cos_of_turns(double x) noexcept {
  double turns = std::abs(x) - std::floor(std::abs(x));  // exact
  if (turns > 0.5) turns = 1 - turns;                    // exact: in [0, 1/2]
  const bool is_negative = turns > 0.25;
  if (is_negative) turns = 0.5 - turns;  // in [0, 1/4]
  const bool is_sine = turns > 0.125;
  if (is_sine) turns = 0.25 - turns;  // in [0, 1/8]
  Pair angle = product_of(turns, kTwoPi.high);
  angle.low += turns * kTwoPi.low;
  const double value = is_sine ? sin_of(angle) : cos_of(angle);
  return is_negative ? -value : value;
}

}  // namespace sparsewire
