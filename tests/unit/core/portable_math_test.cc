// Our own exp, log, cos, ...: close to the exact values (long double has 11 bits more), and the same bits everywhere.
#include "sparsewire/support/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "sparsewire/support/philox.h"

namespace sparsewire::portable_math_test {
namespace {

using std::numeric_limits;

constexpr int kDraws = 20'000;
constexpr double kInfinity = numeric_limits<double>::infinity();

// In [0, 1).
std::vector<double> uniform(std::uint64_t seed) {
  Stream stream(seed, 0, 0, 0);
  std::vector<double> all;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const PhiloxBlock block = stream.block(i);
    all.push_back(static_cast<double>(std::uint64_t{block[0] >> 5U} << 26U | block[1] >> 6U) * 0x1p-53);
  }
  return all;
}

// The largest distance from `exact`, in units in the last place of it.
double worst(const std::vector<double>& xs, const std::function<double(double)>& f,
             const std::function<long double(long double)>& exact) {
  double most = 0;
  for (const double x : xs) {
    const long double right = exact(x);
    const double rounded = std::abs(static_cast<double>(right));
    const double unit = std::nextafter(rounded, kInfinity) - rounded;
    const auto error = static_cast<double>(std::abs(f(x) - right) / unit);
    EXPECT_FALSE(std::isnan(error)) << x;
    most = std::fmax(most, error);
  }
  return most;
}

std::vector<double> each(std::vector<double> xs, const std::function<double(double)>& change) {
  for (double& x : xs) x = change(x);
  return xs;
}

long double exact_exp(long double x) { return std::exp(x); }
long double exact_log(long double x) { return std::log(x); }
long double exact_log1p(long double x) { return std::log1p(x); }
// Near its zeros cos(2 pi x) is a sine of what is left.
long double exact_cos_of_turns(long double x) {
  constexpr long double kTwoPi = 6.283185307179586476925286766559L;
  const long double to_zero = std::fmin(std::abs(x - 0.25L), std::abs(x - 0.75L));
  const bool is_positive = x < 0.25L || x > 0.75L;
  return to_zero < 0.125L ? (is_positive ? 1 : -1) * std::sin(kTwoPi * to_zero) : std::cos(kTwoPi * x);
}

TEST(PortableMath, IsCloseToTheExactValues) {
  if (numeric_limits<long double>::digits <= numeric_limits<double>::digits) GTEST_SKIP() << "long double is a double";
  const std::vector<double> xs = uniform(1);
  for (const double scale : {1e-9, 1e-3, 0.34, 0.35, 1.0, 700.0}) {
    SCOPED_TRACE(scale);
    const std::vector<double> both_signs = each(xs, [&](double x) { return (2 * x - 1) * scale; });
    EXPECT_LT(worst(both_signs, portable_exp, exact_exp), 0.7);
    if (scale <= 1) {
      EXPECT_LT(worst(both_signs, portable_log1p, exact_log1p), 0.7);
    }
    EXPECT_LT(worst(each(both_signs, portable_exp), portable_log, exact_log), 0.7);
    EXPECT_LT(worst(each(both_signs, portable_exp), portable_log1p, exact_log1p), 0.7);
  }
  EXPECT_LT(worst(each(xs, [](double x) { return 1 - x; }), portable_log, exact_log), 0.7);
  EXPECT_LT(worst(xs, portable_cos_of_turns, exact_cos_of_turns), 1);
  for (const double zero : {0.25, 0.75}) {
    const std::vector<double> near = each(xs, [&](double x) { return zero + 1e-6 * (x - 0.5); });
    EXPECT_LT(worst(near, portable_cos_of_turns, exact_cos_of_turns), 1);
  }
  for (const double base : {0.1, 0.5, 0.9, 0.999, 3.0}) {
    const std::vector<double> ys = each(xs, [](double x) { return std::floor(300 * x); });
    EXPECT_LT(worst(
                  ys, [&](double y) { return portable_pow(base, y); },
                  [&](long double y) { return std::pow(static_cast<long double>(base), y); }),
              3);
  }
}

TEST(PortableMath, KnowsTheEnds) {
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(710), kInfinity);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_exp(-800), 0);
  EXPECT_EQ(portable_exp(-kInfinity), 0);
  EXPECT_EQ(portable_exp(-745), numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::isnan(portable_exp(NAN)));
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_log(0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(NAN)));
  EXPECT_DOUBLE_EQ(portable_log(numeric_limits<double>::denorm_min()), std::log(numeric_limits<double>::denorm_min()));
  EXPECT_EQ(portable_log1p(0), 0);
  EXPECT_EQ(portable_log1p(-1), -kInfinity);
  EXPECT_EQ(portable_log1p(kInfinity), kInfinity);
  EXPECT_EQ(portable_pow(0.5, 0), 1);
  EXPECT_EQ(portable_pow(0.5, 10), 0x1p-10);
  EXPECT_EQ(portable_pow(0.5, 2000), 0);
  EXPECT_EQ(portable_pow(2, 2000), kInfinity);
  for (const double turns : {0.0, 1.0, -3.0, 1e9}) EXPECT_EQ(portable_cos_of_turns(turns), 1) << turns;
  for (const double turns : {0.5, -0.5, 7.5}) EXPECT_EQ(portable_cos_of_turns(turns), -1) << turns;
  EXPECT_EQ(portable_cos_of_turns(0.25), 0);
  EXPECT_EQ(portable_tanh(0), 0);
  EXPECT_EQ(portable_tanh(20), 1);
}

// A machine or compiler that gives other bits would train something else.
TEST(PortableMath, HasTheSameBitsEverywhere) {
  std::uint32_t checksum = 0;
  for (const double x : uniform(2)) {
    for (const double y : {portable_exp(20 * x - 10), portable_log(x + 1e-9), portable_log1p(x),
                           portable_pow(x + 0.1, 9 * x), portable_cos_of_turns(x), portable_tanh(3 * x)}) {
      const auto bits = std::bit_cast<std::uint64_t>(y);
      checksum = checksum * 31 + static_cast<std::uint32_t>(bits ^ bits >> 32U);
    }
  }
  EXPECT_EQ(checksum, 1477824333U);
}

}  // namespace
}  // namespace sparsewire::portable_math_test
