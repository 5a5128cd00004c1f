// Which cells are chosen, and when that is at the edge of the grid.
#include "study/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "unit/made_up_study.h"

namespace sparsewire::study::choice_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// Best at this learning rate.
LossOf best_at(double lr) {
  return [lr](const Cell& cell, std::uint64_t seed) {
    return 0.25 + std::fabs(cell.lr - lr) / 16 + static_cast<double>(seed % 2) / 1024;
  };
}

const Cell& chosen(const Results& results, std::size_t group) {
  return results.plan.cells.at(results.choices.at(group).cell.value());
}

TEST(Choice, IsTheSmallestMeanOnTheTuningSeeds) {
  const Plan plan = made_up_plan(small_request({"dense", "topk"}));
  const Results results = made_up_study(plan, best_at(0.3));
  ASSERT_EQ(results.choices.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(chosen(results, i).lr, 0.3);
    EXPECT_EQ(chosen(results, i).method_index, i);
    EXPECT_EQ(results.choices[i].cells_tried, 3u);
    EXPECT_FALSE(results.choices[i].at_low_edge || results.choices[i].at_high_edge);
  }
}

TEST(Choice, IsTheLargestAccuracyIfAsked) {
  Request request = small_request({"dense", "topk"});
  request.tuned_by = kValMetric;
  const Plan plan = made_up_plan(request);
  const auto change = [](Record& run) { run.val_metric = 0.5 + run.cell.lr / 4; };
  const Results results = made_up_study(plan, best_at(0.3), change);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(chosen(results, i).lr, 1);
    EXPECT_TRUE(results.choices[i].at_high_edge);
  }
  EXPECT_EQ(tuned_cells(plan, results.records)[1].mean, 0.5 + 0.3 / 4);
  const auto equal = [](Record& run) { run.val_metric = 0.75; };
  EXPECT_EQ(chosen(made_up_study(plan, best_at(0.3), equal), 1).lr, 0.1) << "the first of equal cells";
}

TEST(Choice, DoesNotLookAtJudgingRuns) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  Results results = made_up_study(plan, best_at(0.3));
  for (const Cell& cell : plan.cells) {
    for (const std::uint64_t seed : plan.seeds) {
      results.records.push_back(made_up_run(plan, kJudge, cell, seed, cell.lr == 1 ? 0.001 : 0.9));
    }
  }
  EXPECT_EQ(plan.cells[*choose(plan, results.records)[0].cell].lr, 0.3);
}

TEST(Choice, IsTheFirstOfEqualCells) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  const Results results = made_up_study(plan, [](const Cell&, std::uint64_t) { return 0.5; });
  EXPECT_EQ(chosen(results, 0).lr, 0.1);
}

TEST(Choice, IsNeverACellThatDivergedOnOneSeed) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  const auto change = [&](Record& run) {
    if (run.cell.lr == 0.3 && run.seed == plan.tune_seeds[1]) diverge(run, 50);
  };
  const Results results = made_up_study(plan, best_at(0.3), change);
  EXPECT_EQ(chosen(results, 0).lr, 0.1);
  EXPECT_EQ(results.choices[0].cells_tried, 3u);
  const std::vector<TunedCell> tuned = tuned_cells(plan, results.records);
  EXPECT_EQ(tuned[1].runs, 2u);
  EXPECT_EQ(tuned[1].diverged, 1u);
  EXPECT_EQ(tuned[1].mean, std::nullopt);
  EXPECT_THAT(tuned[1].by_seed, ElementsAre(Optional(best_at(0.3)(plan.cells[1], plan.tune_seeds[0])), std::nullopt));

  const Results climbed = made_up_study(plan, best_at(0.3), [&](Record& run) {
    if (run.cell.lr == 0.3 && run.seed == plan.tune_seeds[1]) climb(run, 1.5);
  });
  EXPECT_EQ(chosen(climbed, 0).lr, 0.1);
}

TEST(Choice, IsNothingIfAllDiverged) {
  const Plan plan = made_up_plan(small_request({"dense", "topk"}));
  const Results results = made_up_study(plan, best_at(0.3), [](Record& run) {
    if (run.cell.method == "topk") diverge(run, 20);
  });
  EXPECT_TRUE(results.choices[0].cell);
  EXPECT_FALSE(results.choices[1].cell);
  EXPECT_FALSE(results.choices[1].at_low_edge || results.choices[1].at_high_edge);
}

// Makes a threshold with this learning rate send so many times what its ratio asks for.
Change sends(double lr, double times) {
  return [lr, times](Record& run) {
    if (run.phase != kTune || run.cell.method != "threshold" || run.cell.lr != lr) return;
    const std::uint64_t asked = run.cell.k * run.steps * run.config.workers;
    run.totals.entries_up = static_cast<std::uint64_t>(times * static_cast<double>(asked));
  };
}

TEST(Choice, PassesOverAThresholdThatSendsTooMuch) {
  const Plan plan = made_up_plan(small_request({"topk", "threshold"}));
  const Results results = made_up_study(plan, best_at(1), sends(1, 2.5));
  EXPECT_EQ(chosen(results, 0).lr, 1);
  EXPECT_EQ(chosen(results, 1).lr, 0.3);
  ASSERT_TRUE(results.choices[1].too_much);
  EXPECT_EQ(plan.cells[results.choices[1].too_much->cell].lr, 1);
  EXPECT_DOUBLE_EQ(*results.choices[1].too_much->sent_of_asked, 2.5);
  EXPECT_FALSE(results.choices[0].too_much);

  // Twice as much is still taken, and one with a larger loss is not mentioned.
  EXPECT_EQ(chosen(made_up_study(plan, best_at(1), sends(1, 2)), 1).lr, 1);
  const Results modest = made_up_study(plan, best_at(0.1), sends(1, 40));
  EXPECT_EQ(chosen(modest, 1).lr, 0.1);
  EXPECT_FALSE(modest.choices[1].too_much);
}

TEST(Choice, IsTheThresholdThatSendsLeastIfAllSendTooMuch) {
  const Plan plan = made_up_plan(small_request({"threshold"}));
  const Results results =
      made_up_study(plan, best_at(1), [](Record& run) { sends(run.cell.lr, run.cell.lr == 0.3 ? 3 : 5)(run); });
  EXPECT_EQ(chosen(results, 0).lr, 0.3);
  ASSERT_TRUE(results.choices[0].too_much);
  EXPECT_EQ(results.choices[0].too_much->cell, *results.choices[0].cell);
}

// In bits as papers count, an entry of a full vector is half of one of a sparse vector.
TEST(Choice, CountsAllEntriesOfFullVectors) {
  Request request = small_request({"threshold"});
  request.ratios = {"0.4"};
  const Plan plan = made_up_plan(request);
  for (const std::uint64_t sparse : {0U, 1U}) {  // vectors of all but one entry, among the full ones
    SCOPED_TRACE(sparse);
    std::uint64_t vectors = 0;
    const Results results = made_up_study(plan, best_at(1), [&](Record& run) {
      if (run.cell.lr != 1) return;
      vectors = run.steps * run.config.workers;
      run.totals.entries_up = plan.dim * vectors - sparse;
      run.totals.paper_bits_up = 32 * plan.dim * (vectors - sparse) + 64 * (plan.dim - 1) * sparse;
    });
    EXPECT_EQ(chosen(results, 0).lr, 0.3);
    ASSERT_TRUE(results.choices[0].too_much);
    const double sent =
        2.5 * static_cast<double>(plan.dim * vectors - sparse) / static_cast<double>(plan.dim * vectors);
    EXPECT_DOUBLE_EQ(*results.choices[0].too_much->sent_of_asked, sent);
  }
}

TEST(Choice, LetsAThresholdSendMoreWhereBytesAreTheBudget) {
  Plan plan = made_up_plan(small_request({"threshold"}));
  plan.budget_bytes = 100'000;
  const Results results = made_up_study(plan, best_at(1), sends(1, 40));
  EXPECT_EQ(chosen(results, 0).lr, 1);
  EXPECT_FALSE(results.choices[0].too_much);
}

TEST(Choice, NeedsAllSeedsOfACell) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  Results results = made_up_study(plan, best_at(0.3));
  std::erase_if(results.records,
                [&](const Record& run) { return run.cell.lr == 0.3 && run.seed == plan.tune_seeds[0]; });
  EXPECT_EQ(plan.cells[*choose(plan, results.records)[0].cell].lr, 0.1);
}

TEST(Choice, IsTheOnlyCellWithoutTuningSeeds) {
  Request request = small_request({"dense", "topk"});
  request.tune_seeds = 0;
  request.lrs = {0.5};
  const Plan plan = made_up_plan(request);
  const std::vector<Choice> choices = choose(plan, {});
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_THAT(choices[0].cell, Optional(0u));
  EXPECT_THAT(choices[1].cell, Optional(1u));
  EXPECT_EQ(choices[1].cells_tried, 1u);
}

TEST(Choice, FindsTheEdgesOfTheGrid) {
  const Plan plan = made_up_plan(small_request({"topk"}));
  const Choice low = made_up_study(plan, best_at(0)).choices[0];
  EXPECT_TRUE(low.at_low_edge && !low.at_high_edge);
  const Choice high = made_up_study(plan, best_at(2)).choices[0];
  EXPECT_TRUE(!high.at_low_edge && high.at_high_edge);
  // What diverged beyond it bounds the grid as well.
  const Choice bounded = made_up_study(plan, best_at(2), [](Record& run) {
                           if (run.cell.lr == 1) diverge(run, 10);
                         }).choices[0];
  EXPECT_TRUE(!bounded.at_low_edge && !bounded.at_high_edge);

  Request request = small_request({"topk"});
  request.lrs = {0.3};
  const Choice only = made_up_study(made_up_plan(request), best_at(0.3)).choices[0];
  EXPECT_TRUE(only.at_low_edge && only.at_high_edge);
}

TEST(Choice, FindsTheEdgesOfAMethodsOwnParameters) {
  Request request = small_request({"regtopk:mu=1/4/16", "topk | feedback=ef/none lr=0.1/0.3/1"});
  request.lrs = {0.1, 0.3};
  const Plan plan = made_up_plan(request);
  const auto mu = [](double best) {
    return [best](const Cell& cell, std::uint64_t) {
      return cell.own.contains("mu") ? 0.25 + std::fabs(std::stod(cell.own.at("mu")) - best) / 64 : 0.5;
    };
  };
  EXPECT_THAT(made_up_study(plan, mu(1)).choices[0].own_at_edge, ElementsAre(std::pair("mu", "low")));
  EXPECT_THAT(made_up_study(plan, mu(4)).choices[0].own_at_edge, ElementsAre());
  EXPECT_THAT(made_up_study(plan, mu(16)).choices[0].own_at_edge, ElementsAre(std::pair("mu", "high")));
  EXPECT_THAT(made_up_study(plan, mu(16)).choices[1].own_at_edge, ElementsAre()) << "words have no order";
}

}  // namespace
}  // namespace sparsewire::study::choice_test
