// Elementary functions computed with + - * / only, so that every device and every C library gives the same bits.
//
// What is trained depends on their last bits: the data that a problem draws, losses, learning rates, RegTop-k's scores.
// Libraries differ there, and one library by the type of processor. So do compilers that fuse a*b+c: compile what
// includes this with the options of the CMake target sparsewire::equal_bits (-ffp-contract=off).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sparsewire {

namespace elementary {

// A number as the sum of two, where the second is at most half a unit in the last place of the first.
struct Pair {
  double high = 0;
  double low = 0;
};

// Exact. REQUIRES: |a| >= |b|, or a == 0.
inline Pair sum_of(double a, double b) noexcept {
  const double high = a + b;
  return {high, b - (high - a)};
}

// Exact, for any a and b.
inline Pair any_sum_of(double a, double b) noexcept {
  const double high = a + b;
  const double b_part = high - a;
  return {high, (a - (high - b_part)) + (b - b_part)};
}

// Exact: each factor is split into two of 26 bits (Veltkamp), whose products are exact (Dekker, 1971). Not std::fma,
// which is a slow function where the processor has no instruction for it.
inline Pair product_of(double a, double b) noexcept {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_high = a * kSplit - (a * kSplit - a);
  const double b_high = b * kSplit - (b * kSplit - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  const double high = a * b;
  return {high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// ln 2. The first part has so few digits that its products with exponents are exact.
inline constexpr double kLn2High = 6.93147180369123816490e-01;
inline constexpr double kLn2Low = 1.90821492927058770002e-10;
// 1/(n + 1): divisions would take most of the time.
inline constexpr std::array kReciprocals = [] {
  std::array<double, 25> all{};
  for (int n = 0; n < 25; ++n) all[static_cast<unsigned>(n)] = 1.0 / (n + 1);
  return all;
}();
constexpr double one_over(int n) noexcept { return kReciprocals[static_cast<unsigned>(n - 1)]; }
inline constexpr Pair kTwoPi{6.283185307179586, 2.4492935982947064e-16};

// ln x. REQUIRES: x is positive and finite.
inline Pair log_of(double x) noexcept {
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
inline double exp_of(Pair x) noexcept {
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
inline double sin_of(Pair x) noexcept {
  const double square = x.high * x.high;
  double series = 0;
  for (int term = 21; term >= 3; term -= 2) series = -(1 + series) * (square * (one_over(term) * one_over(term - 1)));
  return x.high + (x.low + x.high * series);
}

inline double cos_of(Pair x) noexcept {
  const Pair square = product_of(x.high, x.high);
  double series = 0;
  for (int term = 22; term >= 4; term -= 2)
    series = -(1 + series) * (square.high * (one_over(term) * one_over(term - 1)));
  const Pair first = sum_of(1, -square.high / 2);
  return first.high + (first.low - square.low / 2 - x.high * x.low - series * square.high / 2);
}

}  // namespace elementary

// Like std::exp and std::log: within 0.7 units in the last place where the result is a normal number.
inline double portable_exp(double x) noexcept {
  if (!(x < 710)) return x > 0 ? std::numeric_limits<double>::infinity() : x;
  if (x < -750) return 0;
  return elementary::exp_of({x, 0});
}

// REQUIRES: x is not negative (NaN gives NaN).
inline double portable_log(double x) noexcept {
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (!(x <= std::numeric_limits<double>::max())) return x;
  const elementary::Pair log = elementary::log_of(x);
  return log.high + log.low;
}

// log(1 + x). REQUIRES: x >= -1.
inline double portable_log1p(double x) noexcept {
  const elementary::Pair sum = elementary::any_sum_of(1, x);
  if (!(sum.high > 0) || !std::isfinite(sum.high)) return portable_log(sum.high);
  const elementary::Pair log = elementary::log_of(sum.high);
  return log.high + (log.low + sum.low / sum.high);
}

// x^y within 3 units in the last place where |y log x| < 700. REQUIRES: x > 0.
inline double portable_pow(double x, double y) noexcept {
  if (!(x <= std::numeric_limits<double>::max()) || !std::isfinite(y)) return std::pow(x, y);
  const elementary::Pair log = elementary::log_of(x);
  if (!(std::abs(log.high * y) < 745)) return portable_exp(log.high * y);
  const elementary::Pair product = elementary::product_of(log.high, y);
  return elementary::exp_of({product.high, product.low + log.low * y});
}

// cos(2 pi x) within 1 unit in the last place, also near its zeros, since x is in turns. REQUIRES: |x| < 2^50.
inline double portable_cos_of_turns(double x) noexcept {
  double turns = std::abs(x) - std::floor(std::abs(x));  // exact
  if (turns > 0.5) turns = 1 - turns;                    // exact: in [0, 1/2]
  const bool is_negative = turns > 0.25;
  if (is_negative) turns = 0.5 - turns;  // in [0, 1/4]
  const bool is_sine = turns > 0.125;
  if (is_sine) turns = 0.25 - turns;  // in [0, 1/8]
  elementary::Pair angle = elementary::product_of(turns, elementary::kTwoPi.high);
  angle.low += turns * elementary::kTwoPi.low;
  const double value = is_sine ? elementary::sin_of(angle) : elementary::cos_of(angle);
  return is_negative ? -value : value;
}

// ENSURES: within 1e-15 of tanh(x), monotone up to rounding; 1 for x >= 20. REQUIRES: x >= 0 (NaN gives 1). Here, so
// that devices compute it too.
constexpr double portable_tanh(double x) noexcept {
  if (!(x < 20.0)) return 1.0;
  // expm1(2x) = 2^n * expm1(r) + (2^n - 1) with 2x = n*ln2 + r, |r| <= ln2/2; ln2 in two parts keeps r exact.
  constexpr double kHigh = 6.93147180369123816490e-01;
  constexpr double kLow = 1.90821492927058770002e-10;
  const double y = 2.0 * x;
  const auto n = static_cast<int>(y * 1.4426950408889634 + 0.5);
  const double r = (y - n * kHigh) - n * kLow;
  double series = 0.0;  // Taylor series of expm1(r)/r: the 14th term is below 2^-53 of the first
  for (int term = 14; term >= 1; --term) series = (1.0 + series) * r / (term + 1.0);
  const double small = (1.0 + series) * r;
  const double power = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
  const double e = power * small + (power - 1.0);
  return e / (e + 2.0);
}

}  // namespace sparsewire
