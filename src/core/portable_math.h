// Elementary functions computed with + - * / only, so that every device and every C library gives the same bits.
//
// What is trained depends on their last bits: the data that a problem draws, losses, learning rates, RegTop-k's scores.
// Libraries differ there, and one library by the type of processor.
#pragma once

#include <bit>
#include <cstdint>

namespace sparsewire {

// Like std::exp and std::log: within 0.7 units in the last place where the result is a normal number.
double portable_exp(double x) noexcept;
// REQUIRES: x is not negative (NaN gives NaN).
double portable_log(double x) noexcept;
// log(1 + x). REQUIRES: x >= -1.
double portable_log1p(double x) noexcept;
// x^y within 3 units in the last place where |y log x| < 700. REQUIRES: x > 0.
double portable_pow(double x, double y) noexcept;
// cos(2 pi x) within 1 unit in the last place, also near its zeros, since x is in turns. REQUIRES: |x| < 2^50.
double portable_cos_of_turns(double x) noexcept;

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
