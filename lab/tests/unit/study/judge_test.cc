// What is concluded from judging runs, with numbers that can be followed by hand.
#include "study/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "unit/made_up_study.h"

namespace sparsewire::study::judge_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;

constexpr auto kNone = std::nullopt;

// One learning rate; dense has the loss 0.25 on all seeds, topk these on the judging seeds.
struct Case {
  std::vector<double> losses;
  Request request = small_request({"dense", "topk"});

  explicit Case(std::vector<double> all) : losses(std::move(all)) {
    request.lrs = {0.1};
    request.seeds = losses.size();
  }

  Judgement judged(const Change& change = [](Record&) {}) const {
    const Plan plan = made_up_plan(request);
    const Results results = made_up_study(
        plan,
        [&](const Cell& cell, std::uint64_t seed) {
          const auto at = std::find(plan.seeds.begin(), plan.seeds.end(), seed);
          return cell.method != "topk" || at == plan.seeds.end()
                     ? 0.25
                     : losses[static_cast<std::size_t>(at - plan.seeds.begin())];
        },
        change);
    return judge(plan, results.choices, results.records);
  }
};

TEST(Judge, TakesDifferencesOnEqualSeeds) {
  const Judgement judgement = Case({0.75, 0.5, 0.625}).judged();
  ASSERT_EQ(judgement.groups.size(), 2u);
  const Judged& dense = judgement.groups[0];
  EXPECT_FALSE(dense.vs_baseline);
  EXPECT_EQ(dense.n, 3u);
  const Judged& topk = judgement.groups[1];
  const Summary& loss = *topk.find(kTestLoss);
  EXPECT_THAT(loss.mean, Optional(DoubleNear(0.635, 1e-15)));  // test losses are larger by 0.01
  EXPECT_THAT(loss.sd, Optional(DoubleNear(0.125, 1e-15)));
  EXPECT_THAT(loss.median, Optional(DoubleNear(0.635, 1e-15)));
  const double half = 4.3026527297494639 * 0.125 / std::sqrt(3);
  EXPECT_NEAR(loss.ci95->low, 0.635 - half, 1e-12);
  const Comparison& versus = topk.vs_baseline.value();
  EXPECT_THAT(versus.diff, Optional(DoubleNear(0.375, 1e-15)));
  EXPECT_NEAR(versus.ci95->high, 0.375 + half, 1e-12);
  // With two degrees of freedom P(|T| > t) = 1 - t/sqrt(2 + t^2).
  const double t = 0.375 / (0.125 / std::sqrt(3));
  EXPECT_THAT(versus.p, Optional(DoubleNear(1 - t / std::sqrt(2 + t * t), 1e-13)));
  EXPECT_EQ(versus.p_holm, versus.p) << "the only comparison";
  EXPECT_EQ(versus.wins, 0u);
  EXPECT_EQ(versus.losses, 3u);
}

TEST(Judge, CountsTiesAsNeither) {
  const Comparison versus = Case({0.25, 0.125, 0.5, 0.25}).judged().groups[1].vs_baseline.value();
  EXPECT_EQ(versus.wins, 1u);
  EXPECT_EQ(versus.losses, 1u);
  const Comparison same = Case({0.25, 0.25, 0.25}).judged().groups[1].vs_baseline.value();
  EXPECT_EQ(same.wins + same.losses, 0u);
  EXPECT_THAT(same.diff, Optional(0.0));
  EXPECT_THAT(same.p, Optional(1.0));
}

TEST(Judge, GivesNoMeanIfARunDiverged) {
  for (const bool all_steps : {false, true}) {
    const Judgement judgement = Case({0.125, 0.5, 0.125, 0.625, 0.125}).judged([&](Record& run) {
      if (run.phase != kJudge || run.cell.method != "topk" || run.seed != 1) return;
      all_steps ? climb(run, 1.25) : diverge(run, 30);
    });
    const Judged& topk = judgement.groups[1];
    EXPECT_EQ(topk.n, 5u);
    EXPECT_EQ(topk.diverged, 1u);
    const Summary& loss = *topk.find(kTestLoss);
    EXPECT_EQ(loss.mean, kNone);
    EXPECT_EQ(loss.sd, kNone);
    EXPECT_EQ(loss.ci95, kNone);
    EXPECT_THAT(loss.median, Optional(0.135));
    EXPECT_EQ(loss.by_seed[1], kNone);
    EXPECT_THAT(loss.by_seed[3], Optional(0.635));
    const Comparison& versus = topk.vs_baseline.value();
    EXPECT_EQ(versus.diff, kNone);
    EXPECT_EQ(versus.ci95, kNone);
    EXPECT_EQ(versus.p, kNone);
    EXPECT_EQ(versus.p_holm, kNone);
    EXPECT_EQ(versus.wins, 3u);
    EXPECT_EQ(versus.losses, 2u);
    EXPECT_TRUE(judgement.groups[0].find(kTestLoss)->mean) << "the baseline has its own";
  }
}

TEST(Judge, HasNoMedianIfMostRunsDiverged) {
  const Judged topk = Case({0.125, 0.5, 0.125})
                          .judged([&](Record& run) {
                            if (run.phase == kJudge && run.cell.method == "topk" && run.seed > 0) diverge(run, 30);
                          })
                          .groups[1];
  EXPECT_EQ(topk.find(kTestLoss)->median, kNone);
  EXPECT_EQ(topk.diverged, 2u);
  EXPECT_EQ(topk.vs_baseline->wins, 1u);
}

TEST(Judge, CanHaveABaselineThatDiverged) {
  const Judgement judgement = Case({0.5, 0.5, 0.5}).judged([&](Record& run) {
    if (run.phase == kJudge && run.seed == 2) diverge(run, 30);
    if (run.phase == kJudge && run.cell.method == "dense") diverge(run, 30);
  });
  const Comparison& versus = judgement.groups[1].vs_baseline.value();
  EXPECT_EQ(versus.diff, kNone);
  EXPECT_EQ(versus.wins, 2u);
  EXPECT_EQ(versus.losses, 0u) << "two runs that diverged are equal";
}

TEST(Judge, HasNoIntervalWithOneSeed) {
  const Judged topk = Case({0.5}).judged().groups[1];
  EXPECT_THAT(topk.vs_baseline->diff, Optional(0.25));
  EXPECT_EQ(topk.vs_baseline->ci95, kNone);
  EXPECT_EQ(topk.vs_baseline->p_holm, kNone);
  EXPECT_EQ(topk.find(kTestLoss)->sd, kNone);
}

TEST(Judge, TakesTheLargerOfAccuracies) {
  Case one({0.5, 0.125, 0.0625});
  one.request.primary = "metric";
  const auto change = [](Record& run) {
    if (run.phase == kJudge && run.cell.method == "topk" && run.seed == 0) diverge(run, 20);
  };
  const Judged topk = one.judged(change).groups[1];
  EXPECT_EQ(topk.vs_baseline->wins, 2u);
  EXPECT_EQ(topk.vs_baseline->losses, 1u);
  EXPECT_THAT(topk.find(kMetric)->median, Optional(1 - 0.125 / 2));
  EXPECT_GT(*one.judged().groups[1].vs_baseline->diff, 0);
}

TEST(Judge, AdjustsForAllMethodsAndRatios) {
  Request request = small_request({"dense", "topk", "randomk"});
  request.ratios = {"0.1", "0.2"};
  request.lrs = {0.1};
  const Plan plan = made_up_plan(request);
  const Results results = made_up_study(
      plan,
      [&](const Cell& cell, std::uint64_t seed) {
        return 0.25 + static_cast<double>(cell.method_index) / 16 +
               static_cast<double>(seed % 3) * cell.lr * 0.01 * static_cast<double>(cell.k) / 30;
      },
      [](Record& run) {
        if (run.phase == kJudge && run.cell.method == "randomk" && run.cell.ratio == "0.2") diverge(run, 20);
      });
  const Judgement judgement = judge(plan, results.choices, results.records);
  ASSERT_EQ(judgement.groups.size(), 5u);
  std::vector<std::optional<double>> p;
  for (std::size_t i = 1; i < 5; ++i) p.push_back(judgement.groups[i].vs_baseline->p);
  ASSERT_FALSE(p[3]);
  const std::vector<std::optional<double>> adjusted = holm(p);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(judgement.groups[i].vs_baseline->p_holm, adjusted[i - 1]);
  EXPECT_DOUBLE_EQ(std::min({*adjusted[0], *adjusted[1], *adjusted[2]}), 4 * std::min({*p[0], *p[1], *p[2]}));
}

TEST(Judge, ComparesWithTheBaselineOfTheSameRatio) {
  Request request = small_request({"dense", "topk", "randomk"});
  request.ratios = {"0.1", "0.2"};
  request.lrs = {0.1};
  request.baseline = "topk";
  const Plan plan = made_up_plan(request);
  const Results results =
      made_up_study(plan, [](const Cell& cell, std::uint64_t) { return static_cast<double>(cell.k) / 1024; });
  const Judgement judgement = judge(plan, results.choices, results.records);
  ASSERT_EQ(judgement.groups.size(), 5u);
  EXPECT_EQ(judgement.groups[0].vs_baseline->baseline.ratio, "0.1") << "dense has none: the first";
  EXPECT_FALSE(judgement.groups[1].vs_baseline);
  EXPECT_FALSE(judgement.groups[2].vs_baseline);
  EXPECT_EQ(judgement.groups[3].vs_baseline->baseline.ratio, "0.1");
  EXPECT_EQ(judgement.groups[4].vs_baseline->baseline.ratio, "0.2");
  EXPECT_THAT(judgement.groups[4].vs_baseline->diff, Optional(0.0));
}

TEST(Target, IsTheBaselinesLossAndATwentiethOfItsDrop) {
  EXPECT_THAT(Case({0.5}).judged().target, Optional(DoubleNear(0.25 + 0.05 * 0.75, 1e-15)));
  Case given({0.5});
  given.request.target = 0.375;
  EXPECT_THAT(given.judged().target, Optional(0.375));
  Case untuned({0.5});
  untuned.request.tune_seeds = 0;
  EXPECT_EQ(untuned.judged().target, kNone);
  EXPECT_FALSE(untuned.judged().groups[1].to_target);
}

TEST(Target, IsReachedWhenTheMeanOfFiveEvaluationsIs) {
  Case one({0.25, 0.25, 0.25});
  one.request.target = 0.3;
  // The loss is 0.25 + 0.75/2^i at evaluation i; its mean over i-4 ... i is 0.25 + 0.75*31/5/2^i: below 0.3 at 7.
  const Judgement judgement = one.judged();
  const ToTarget& dense = judgement.groups[0].to_target.value();
  const ToTarget& topk = judgement.groups[1].to_target.value();
  EXPECT_EQ(dense.reached, 3u);
  EXPECT_THAT(dense.steps_by_seed, ElementsAre(Optional(70.0), Optional(70.0), Optional(70.0)));
  EXPECT_THAT(dense.bytes_by_seed, ElementsAre(Optional(70 * 2400.0), Optional(70 * 2401.0), Optional(70 * 2402.0)));
  EXPECT_THAT(topk.bytes_by_seed, ElementsAre(Optional(70 * 240.0), Optional(70 * 241.0), Optional(70 * 242.0)));
  EXPECT_THAT(topk.median_bytes, Optional(70 * 241.0));
  EXPECT_THAT(topk.median_steps, Optional(70.0));
  EXPECT_EQ(topk.censored_at, kNone);
  const double logs = std::log(240 / 2400.0) + std::log(241 / 2401.0) + std::log(242 / 2402.0);
  EXPECT_THAT(topk.log_ratio, Optional(DoubleNear(logs / 3, 1e-14)));
  EXPECT_TRUE(topk.log_ratio_ci95);
  EXPECT_EQ(dense.log_ratio, kNone);
}

TEST(Target, CensorsRunsThatDoNotReachIt) {
  Case one({0.25, 0.5, 0.25, 0.5});
  one.request.target = 0.3;
  const ToTarget topk = one.judged().groups[1].to_target.value();
  EXPECT_EQ(topk.reached, 2u);
  EXPECT_EQ(topk.median_bytes, kNone) << "the mean of one that reached it and infinity";
  EXPECT_THAT(topk.censored_at, Optional(100 * 240u)) << "seed 3, with fewer bytes than seed 1";
  EXPECT_EQ(topk.log_ratio, kNone);

  one.losses = {0.25, 0.5, 0.25, 0.25};
  const ToTarget most = one.judged().groups[1].to_target.value();
  EXPECT_EQ(most.reached, 3u);
  EXPECT_THAT(most.median_bytes, Optional((70 * 240.0 + 70 * 242.0) / 2)) << "70*240, 70*240, 70*242, infinity";
  EXPECT_EQ(most.log_ratio, kNone);
}

TEST(Target, IsNeverReachedByARunThatDiverged) {
  Case one({0.25, 0.25, 0.25});
  one.request.target = 0.9;
  const ToTarget topk = one.judged([](Record& run) {
                             if (run.phase == kJudge && run.cell.method == "topk" && run.seed == 0) climb(run, 1.5);
                           })
                            .groups[1]
                            .to_target.value();
  EXPECT_EQ(topk.reached, 2u);
  EXPECT_EQ(topk.steps_by_seed[0], kNone);
}

TEST(EqualBytes, AreInterpolatedAtTheSmallestFinalCount) {
  const Judgement judgement = Case({0.5, 0.5, 0.5}).judged();
  // Top-k with seed 0 has the fewest: 100 steps of 30 entries of 8 bytes. Dense had moved as many after step 10.
  EXPECT_THAT(judgement.equal_bytes, Optional(24'000u));
  const EqualBytes& dense = judgement.groups[0].equal_bytes.value();
  EXPECT_THAT(dense.numbers.by_seed[0], Optional(DoubleNear(0.25 + 0.375 + 0.01, 1e-15)));
  const double at_1 = 24'000.0 / 24'010;  // of the way to step 10
  EXPECT_THAT(dense.numbers.by_seed[1], Optional(DoubleNear(1.01 - at_1 * 0.375, 1e-15)));
  const EqualBytes& topk = judgement.groups[1].equal_bytes.value();
  EXPECT_THAT(topk.numbers.by_seed[0], Optional(0.51));
  EXPECT_THAT(topk.vs_baseline->diff, Optional(DoubleNear(*topk.numbers.mean - *dense.numbers.mean, 1e-15)));
  EXPECT_EQ(topk.vs_baseline->wins, 3u);
  EXPECT_EQ(topk.vs_baseline->p_holm, kNone) << "Holm's adjustment is for the primary measure at the end";
}

TEST(EqualBytes, LeaveOutRunsThatDiverged) {
  const Judgement judgement = Case({0.5, 0.5, 0.5}).judged([](Record& run) {
    if (run.phase != kJudge || run.cell.method != "topk" || run.seed != 0) return;
    diverge(run, 20);
    run.totals.bytes_up = run.totals.bytes_down = 5;
  });
  EXPECT_THAT(judgement.equal_bytes, Optional(24'100u));
  EXPECT_EQ(judgement.groups[1].equal_bytes->numbers.mean, kNone);
  EXPECT_TRUE(judgement.groups[0].equal_bytes->numbers.mean);
}

TEST(EqualBytes, NeedAConstantScheduleOrABudget) {
  Case one({0.5, 0.5, 0.5});
  one.request.config.schedule = "constant:warmup=10";
  EXPECT_TRUE(one.judged().equal_bytes);
  one.request.config.schedule = "cosine";
  EXPECT_EQ(one.judged().equal_bytes, kNone);
  EXPECT_FALSE(one.judged().groups[1].equal_bytes);
  one.request.budget_bytes = 1'000'000;
  const Judgement judgement = one.judged();
  EXPECT_THAT(judgement.equal_bytes, Optional(1'000'000u));
  EXPECT_THAT(judgement.groups[1].equal_bytes->numbers.by_seed[0], Optional(0.51)) << "what it has at the end";
}

TEST(Judge, ShowsWhatThePilotCost) {
  Request request = small_request({"dense", "threshold"});
  request.lrs = {0.1, 0.3};
  const Plan plan = made_up_plan(request);
  const Results results = made_up_study(plan, [](const Cell& cell, std::uint64_t) { return 1 - cell.lr; });
  const Judgement judgement = judge(plan, results.choices, results.records);
  EXPECT_FALSE(judgement.groups[0].pilot);
  EXPECT_EQ(judgement.groups[1].pilot->bytes, 100u * (30 * 8 + 1000 % 3));
  EXPECT_THAT(judgement.groups[1].pilot->lambda, Optional(0.125));
}

TEST(Judge, WorksOnAStudyThatIsNotFinished) {
  Case one({0.5, 0.625, 0.75});
  const Plan plan = made_up_plan(one.request);
  Results results = made_up_study(plan, [](const Cell& cell, std::uint64_t) { return cell.lr; });
  std::erase_if(results.records, [](const Record& run) { return run.phase == kJudge && run.seed == 1; });
  const Judgement judgement = judge(plan, results.choices, results.records);
  EXPECT_EQ(judgement.groups[1].n, 2u);
  EXPECT_TRUE(judgement.groups[1].vs_baseline->diff);
  const Judgement nothing = judge(plan, choose(plan, {}), {});
  EXPECT_EQ(nothing.groups[1].n, 0u);
  EXPECT_EQ(nothing.groups[1].vs_baseline->diff, kNone);
}

}  // namespace
}  // namespace sparsewire::study::judge_test
