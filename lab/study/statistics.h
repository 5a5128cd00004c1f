// The statistics of a study, as functions of numbers. They use + - * / and square roots only, so that every machine
// gets the same bits.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace sparsewire::study {

struct Interval {
  double low = 0;
  double high = 0;

  bool operator==(const Interval&) const = default;
};

// REQUIRES: not empty. ENSURES: exact if all numbers are equal.
double mean(std::span<const double> numbers);
// With n - 1 in the denominator. Nothing for fewer than two numbers.
std::optional<double> standard_deviation(std::span<const double> numbers);
// The mean and t(.975, n-1) * sd / sqrt(n) to both sides. Nothing for fewer than two numbers.
std::optional<Interval> confidence_interval(std::span<const double> numbers);
// The p value of the two-sided t test that the mean is 0. Numbers that are all equal give 0, or 1 if they are 0.
// Nothing for fewer than two numbers.
std::optional<double> t_test(std::span<const double> numbers);

// P(|T| > |t|), where T has the t distribution with that many degrees of freedom. ENSURES: a relative error below 1e-12
// down to 1e-300, for up to 1000 degrees. REQUIRES: degrees > 0.
double two_sided_p(double t, std::size_t degrees);
// The t that |T| exceeds with probability 0.05: the quantile .975. REQUIRES: degrees > 0.
double t_975(std::size_t degrees);

// Holm's adjustment of p values for all of them together, in the same order. What has no p value is counted as one that
// is 1: how many comparisons there are must not depend on what came out. It has none afterwards either.
std::vector<std::optional<double>> holm(std::span<const std::optional<double>> p);

// May contain infinities; of an even number the mean of the two in the middle. REQUIRES: not empty, no NaN.
double median(std::vector<double> numbers);

// The first index i such that the mean of numbers[i-4] ... numbers[i] is at most `target`. A mean with a NaN never is.
inline constexpr std::size_t kTrailing = 5;
std::optional<std::size_t> first_to_reach(std::span<const double> numbers, double target);

// The value at `x` of the line through the points (xs[i], ys[i]); xs ascend, and of equal ones the last counts. Nothing
// outside of them. REQUIRES: as many ys as xs.
std::optional<double> interpolate(std::span<const double> xs, std::span<const double> ys, double x);

}  // namespace sparsewire::study
