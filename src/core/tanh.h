// tanh computed with + - * / only, so that every device gives the same bits: RegTop-k's scores, and so the entries that
// are sent, depend on it.
#pragma once

#include <bit>
#include <cstdint>

namespace sparsewire {

// ENSURES: within 1e-15 of tanh(x), monotone up to rounding; 1 for x >= 20. REQUIRES: x >= 0 (NaN gives 1).
inline double portable_tanh(double x) noexcept {
  if (!(x < 20.0)) return 1.0;
  // expm1(2x) = 2^n * expm1(r) + (2^n - 1) with 2x = n*ln2 + r, |r| <= ln2/2; ln2 in two parts keeps r exact.
  const double y = 2.0 * x;
  const auto n = static_cast<int>(y * 1.4426950408889634 + 0.5);
  const double r = (y - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double series = 0.0;  // Taylor series of expm1(r)/r: the 14th term is below 2^-53 of the first
  for (int term = 14; term >= 1; --term) series = (1.0 + series) * r / (term + 1.0);
  const double small = (1.0 + series) * r;
  const double power = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
  const double e = power * small + (power - 1.0);
  return e / (e + 2.0);
}

}  // namespace sparsewire
