// Statistics, compared with values that were computed with 60 digits by another program, or by hand.
#include "study/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace sparsewire::study::statistics_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Numbers = std::vector<double>;
using PValues = std::vector<std::optional<double>>;

TEST(TDistribution, HasTheseProbabilities) {
  struct Case {
    double t;
    std::size_t degrees;
    double p;
  };
  for (const Case& one : {Case{1, 1, 0.5},
                          {0.001, 1, 0.99936338043983888},
                          {12.5, 1, 0.050821347332231791},
                          {1e6, 1, 6.3661977236736914e-7},
                          {0.5, 2, 0.66666666666666667},
                          {4.25, 2, 0.051152527283889121},
                          {2.5, 4, 0.066766544811988145},
                          {30, 4, 7.3528560976613221e-6},
                          {1e4, 4, 5.999999600000021e-16},
                          {0.25, 9, 0.80820036970490314},
                          {8, 9, 2.2134816809400154e-5},
                          {200, 9, 9.935761689180221e-18},
                          {1.75, 30, 0.090341727953211113},
                          {100, 30, 1.9846117967270249e-39},
                          {3, 100, 0.0034079153433294495},
                          {0.75, 999, 0.4534312937473421},
                          {2, 999, 0.045770616973757003},
                          {50, 999, 3.6127632476763508e-274}}) {
    EXPECT_NEAR(two_sided_p(one.t, one.degrees) / one.p, 1, 1e-12) << one.t << ", " << one.degrees << " degrees";
    EXPECT_EQ(two_sided_p(-one.t, one.degrees), two_sided_p(one.t, one.degrees));
  }
}

TEST(TDistribution, EndsAtOneAndAtZero) {
  EXPECT_EQ(two_sided_p(0, 4), 1);
  EXPECT_EQ(two_sided_p(1e-200, 4), 1);
  EXPECT_EQ(two_sided_p(kInfinity, 4), 0);
  EXPECT_EQ(two_sided_p(1e200, 4), 0);
}

TEST(TDistribution, HasTheseQuantiles) {
  struct Case {
    std::size_t degrees;
    double t;
  };
  for (const Case& one : {Case{1, 12.706204736174705},
                          {2, 4.3026527297494639},
                          {3, 3.1824463052837096},
                          {4, 2.7764451051977944},
                          {5, 2.5705818356363155},
                          {9, 2.2621571627982055},
                          {19, 2.0930240544083098},
                          {29, 2.0452296421327043},
                          {99, 1.9842169515864175},
                          {999, 1.96234146113345}}) {
    EXPECT_NEAR(t_975(one.degrees), one.t, 1e-11) << one.degrees;
  }
}

TEST(Mean, OfEqualNumbersIsThatNumberAndHasNoSpread) {
  const Numbers equal(7, 0.1);
  EXPECT_EQ(mean(equal), 0.1);
  EXPECT_THAT(standard_deviation(equal), Optional(0.0));
  EXPECT_THAT(confidence_interval(equal), Optional(Interval{0.1, 0.1}));
  EXPECT_THAT(t_test(equal), Optional(0.0));
  EXPECT_THAT(t_test(Numbers(3, 0.0)), Optional(1.0));
}

TEST(Mean, HasAnIntervalFromTwoNumbersOn) {
  EXPECT_EQ(mean(Numbers{0.25}), 0.25);
  EXPECT_EQ(standard_deviation(Numbers{0.25}), std::nullopt);
  EXPECT_EQ(confidence_interval(Numbers{0.25}), std::nullopt);
  EXPECT_EQ(t_test(Numbers{0.25}), std::nullopt);

  // 1, 2, 3, 4, 5: the mean is 3, the variance 2.5; t = 3/sqrt(2.5/5).
  const Numbers five{1, 2, 3, 4, 5};
  EXPECT_EQ(mean(five), 3);
  EXPECT_THAT(standard_deviation(five), Optional(std::sqrt(2.5)));
  const double half = 2.7764451051977944 * std::sqrt(0.5);
  EXPECT_NEAR(confidence_interval(five)->low, 3 - half, 1e-12);
  EXPECT_NEAR(confidence_interval(five)->high, 3 + half, 1e-12);
  EXPECT_NEAR(*t_test(five), 0.013235599563682, 1e-13);  // 1 - 2*(x/2)*(1 - x^2/3)*1.5, x = t/sqrt(t^2 + 4)
}

TEST(Holm, AdjustsFromTheSmallestUp) {
  // The example of every textbook: 0.01*4, 0.02*3, 0.03*2 is below the one before, 0.04.
  EXPECT_THAT(holm(PValues{0.04, 0.01, 0.03, 0.02}),
              ElementsAre(Optional(0.06), Optional(0.04), Optional(0.06), Optional(0.06)));
  EXPECT_THAT(holm(PValues{0.5, 0.75}), ElementsAre(Optional(1.0), Optional(1.0)));
  EXPECT_THAT(holm(PValues{0.25}), ElementsAre(Optional(0.25)));
  EXPECT_TRUE(holm(PValues{}).empty());
}

TEST(Holm, CountsComparisonsThatHaveNoPValue) {
  EXPECT_THAT(holm(PValues{std::nullopt, 0.0625, std::nullopt, 0.125}),
              ElementsAre(Eq(std::nullopt), Optional(0.25), Eq(std::nullopt), Optional(0.375)));
}

TEST(Median, MayBeInfinite) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({1, kInfinity, 2}), 2);
  EXPECT_EQ(median({1, kInfinity}), kInfinity);
  EXPECT_EQ(median({kInfinity, kInfinity, 1, kInfinity}), kInfinity);
  EXPECT_EQ(median({-kInfinity, 1}), -kInfinity);
}

TEST(FirstToReach, TakesTheMeanOfTheLastFive) {
  EXPECT_THAT(first_to_reach(Numbers{5, 4, 3, 2, 1, 0}, 3), Optional(4u));
  EXPECT_THAT(first_to_reach(Numbers{5, 4, 3, 2, 1, 0}, 2.5), Optional(5u));
  EXPECT_THAT(first_to_reach(Numbers{9, 9, 0, 9, 9, 9, 0, 0, 0, 0}, 4), Optional(8u)) << "one good value is not enough";
  EXPECT_EQ(first_to_reach(Numbers{5, 4, 3, 2, 1, 0}, 1.9), std::nullopt);
  EXPECT_EQ(first_to_reach(Numbers{0, 0, 0, 0}, 1), std::nullopt) << "four are not enough";
  EXPECT_THAT(first_to_reach(Numbers{kNan, 0, 0, 0, 0, 0, 0}, 1), Optional(5u));
  EXPECT_EQ(first_to_reach(Numbers{}, 1), std::nullopt);
}

TEST(Interpolate, IsALineBetweenPoints) {
  const Numbers xs{0, 10, 20, 20, 30};
  const Numbers ys{8, 4, 2, 1, 0};
  EXPECT_THAT(interpolate(xs, ys, 0), Optional(8.0));
  EXPECT_THAT(interpolate(xs, ys, 2.5), Optional(7.0));
  EXPECT_THAT(interpolate(xs, ys, 20), Optional(1.0));
  EXPECT_THAT(interpolate(xs, ys, 25), Optional(0.5));
  EXPECT_THAT(interpolate(xs, ys, 30), Optional(0.0));
  EXPECT_EQ(interpolate(xs, ys, 31), std::nullopt);
  EXPECT_EQ(interpolate(xs, ys, -1), std::nullopt);
  EXPECT_EQ(interpolate(Numbers{}, Numbers{}, 0), std::nullopt);
}

}  // namespace
}  // namespace sparsewire::study::statistics_test
